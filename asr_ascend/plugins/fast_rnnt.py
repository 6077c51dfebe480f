"""fast_rnnt: its losses over a joiner's output, full and pruned."""

from __future__ import annotations

import importlib

from asr_ascend.plugins.changes import Changes, check_arguments, owners
from asr_ascend.plugins.k2_losses import make_losses

_ARGUMENTS = {
    "rnnt_loss": ("logits", "symbols", "termination_symbol", "boundary"),
    "rnnt_loss_pruned": ("logits", "symbols", "ranges", "termination_symbol", "boundary"),
}


def install(changes: Changes, *, blank_in_targets: str = "error", validate: bool = False) -> None:
    """Replaces ``rnnt_loss`` and ``rnnt_loss_pruned``; a stand-in has these two alone.

    Of ``rnnt_type`` "regular" and "modified", not "constrained". The pruned loss copies the rows of
    its cells and computes the band of ``ranges``. An NPU has no delay penalty yet.

    Args:
        blank_in_targets, validate: as for ``rnnt_loss``.
    """
    options = {"blank_in_targets": blank_in_targets, "validate": validate}
    losses = make_losses(changes, options)
    if changes.is_stand_in:
        changes.add_module(changes.name, losses)
        return
    package = importlib.import_module(changes.name)
    for name, arguments in _ARGUMENTS.items():
        check_arguments(f"{changes.name}.{name}", getattr(package, name), arguments)
    for name, new in losses.items():
        changes.replace(owners(name, changes.name, f"{changes.name}.rnnt_loss"), new)
