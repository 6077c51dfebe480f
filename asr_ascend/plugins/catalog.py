"""The plugs that there are, the packages they belong to, and what is installed of these here."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from asr_ascend.plugins.changes import PluginWarning


@dataclass(frozen=True)
class Plug:
    """One framework.

    Args:
        name: of the plug, of its module in this package, and of the framework's module.
        distribution: what pip calls the framework.
        versions: first and last release that the plug was tested with or written for, as
            "2.9".
        line: the code that a user writes.
        serves: other frameworks that call this one's loss.
        stands_in: whether a stand-in module is made where the framework is not installed.
    """

    name: str
    distribution: str
    versions: tuple[str, str]
    line: str
    serves: str = ""
    stands_in: bool = False

    def load(self) -> Callable[..., None]:
        """The ``install`` of the plug's module."""
        function: Callable[..., None] = importlib.import_module(
            f"asr_ascend.plugins.{self.name}"
        ).install
        return function

    def is_present(self) -> bool:
        """Whether the framework can be imported here; looks, and imports nothing."""
        if self.name in sys.modules:
            return sys.modules[self.name] is not None
        return importlib.util.find_spec(self.name) is not None

    def version(self) -> str | None:
        """The framework's version, "unknown", or None where it isn't installed."""
        if not self.is_present():
            return None
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            module = sys.modules.get(self.name)
            return str(getattr(module, "__version__", "unknown"))

    def warn_if_unknown(self) -> None:
        """Warns of a version outside of ``versions``; of none where a stand-in will do.

        Raises:
            ImportError: the framework is not installed, and there is no stand-in.
        """
        version = self.version()
        if version is None:
            if self.stands_in:
                return
            raise ImportError(
                f"`{self.name}` must be installed to be changed, but can't be found.",
                name=self.name,
            )
        first, last = (_numbers(bound) for bound in self.versions)
        if not first <= _numbers(version) or _numbers(version)[: len(last)] > last:
            warnings.warn(
                f"{self.name} {version} is not among the versions that this plug knows "
                f"({self.versions[0]} to {self.versions[1]}): "
                "compare a loss and its gradient before you train.",
                PluginWarning,
                stacklevel=3,
            )

    def check_options(self, function: Callable[..., None], options: Mapping[str, Any]) -> None:
        """Raises TypeError for an option that the plug doesn't have, ValueError for a bad value."""
        parameters = list(inspect.signature(function).parameters)[1:]
        for option, value in options.items():
            if option not in parameters:
                raise TypeError(
                    f'`install("{self.name}")` has no option `{option}`; '
                    f"it has {', '.join(parameters)}."
                )
            if option == "blank_in_targets" and value not in ("error", "allow"):
                raise ValueError(
                    f'`blank_in_targets` must be "error" or "allow", but is {value!r}.'
                )
            if option in _FLAGS and not isinstance(value, bool):
                raise TypeError(f"`{option}` must be a bool, but is {value!r}.")


_FLAGS = ("cpu", "patch", "validate", "reuse_logits", "exact_mean")


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 11, 0) of "2.11.0+cpu"; () of "unknown"."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


PLUGS = {
    plug.name: plug
    for plug in (
        Plug(
            name="torchaudio",
            distribution="torchaudio",
            versions=("2.9", "2.11"),
            line='install("torchaudio", cpu=True)',
            serves="WeNet, icefall",
        ),
        Plug(
            name="warprnnt_pytorch",
            distribution="warprnnt_pytorch",
            versions=("0.1", "0.1"),
            line='install("warprnnt_pytorch")',
            serves="ESPnet, NeMo",
            stands_in=True,
        ),
        Plug(
            name="warp_rnnt",
            distribution="warp_rnnt",
            versions=("0.6", "0.7"),
            line='install("warp_rnnt")',
            serves="FunASR",
            stands_in=True,
        ),
        Plug(
            name="optimized_transducer",
            distribution="optimized_transducer",
            versions=("1.3", "1.4"),
            line='install("optimized_transducer")',
            serves="icefall",
            stands_in=True,
        ),
        Plug(
            name="fast_rnnt",
            distribution="fast_rnnt",
            versions=("1.0", "1.3"),
            line='install("fast_rnnt")',
            stands_in=True,
        ),
        Plug(
            name="k2",
            distribution="k2",
            versions=("1.20", "1.24"),
            line='install("k2")',
            serves="icefall, WeNet, ESPnet",
        ),
        Plug(
            name="nemo",
            distribution="nemo_toolkit",
            versions=("2.4", "3.0"),
            line='install("nemo")  # loss_name: asr_ascend',
        ),
        Plug(
            name="speechbrain",
            distribution="speechbrain",
            versions=("1.0", "1.1"),
            line='install("speechbrain")',
        ),
    )
}
