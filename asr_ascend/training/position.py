"""Where in its epochs a checkpoint stands."""

from __future__ import annotations

from typing import Any


def set_position(fit_loop: dict[str, Any]) -> None:
    """Makes Lightning's saved progress agree with the loader's, which is what was used.

    The two disagree in two cases. As training ends, Lightning counts the epoch as finished, even
    where a part of it is left. And a run that resumed at the end of an epoch doesn't count the next
    one as begun. In both cases a resumed run would begin a later epoch than an unbroken run.

    Args:
        fit_loop: the part of a checkpoint that Lightning's loop of epochs saved; changed in place.
    """
    epoch = fit_loop["state_dict"]["combined_loader"][0]["epoch"]
    progress, batches = fit_loop["epoch_progress"], fit_loop["epoch_loop.batch_progress"]
    ended = progress["current"]["processed"] > epoch
    for part in ("total", "current"):
        progress[part].update(ready=epoch + 1, started=epoch + 1, processed=epoch, completed=epoch)
        if ended:  # as at the end of any other batch
            batches[part]["completed"] = batches[part]["processed"] - 1
    if ended:
        fit_loop["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1
