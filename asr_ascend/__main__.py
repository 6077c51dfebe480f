"""One command for all that this package does: ``asr-ascend COMMAND ...``.

``python -m asr_ascend COMMAND ...`` is the same, and each command is a module of its own, too:
``python -m asr_ascend.train ...``.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

from asr_ascend import __version__

# Module, and what it does. A module has `main(arguments)`, or `cli(arguments)` where it is a config
# that is read.
COMMANDS = {
    "train": ("asr_ascend.train", "trains a model"),
    "evaluate": ("asr_ascend.evaluate", "measures errors by SNR and emission delay, with a report"),
    "transcribe": ("asr_ascend.transcribe", "transcribes files, folders or standard input"),
    "compare": ("asr_ascend.compare", "compares two evaluations"),
    "average": ("asr_ascend.average", "averages the weights of checkpoints"),
    "import": ("asr_ascend.data.importing.command", "makes manifests of your recordings and texts"),
    "noise": ("asr_ascend.data.noise.command", "makes banks of substation noise, and shows it"),
    "rooms": ("asr_ascend.data.rooms.command", "makes responses of rooms"),
    "synthesize": ("asr_ascend.data.synthesis.corpus", "makes the embedded corpus"),
    "plugins": ("asr_ascend.plugins.__main__", "lists the frameworks that can call the loss"),
    "doctor": ("asr_ascend.doctor.command", "says what of this installation is right"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("--help", "-h", "help"):
        print(_help())
        return 0 if given else 2
    name, *rest = given
    if name == "--version":
        print(_version())
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name.lstrip("-"), COMMANDS, 1)
        advice = f" Did you mean asr-ascend {near[0]}?" if near else ""
        print(
            f"Error: There is no command '{name}'; there are {', '.join(COMMANDS)}.{advice}",
            file=sys.stderr,
        )
        return 2
    module = importlib.import_module(COMMANDS[name][0])
    run = getattr(module, "cli", None) or module.main
    status: int | None = run(rest)
    return status or 0


def _help() -> str:
    commands = "\n".join(f"  {name:12s}{about}" for name, (_, about) in COMMANDS.items())
    return f"""\
usage: asr-ascend COMMAND ...

Streaming speech recognition with a fused RNN-T loss, for Ascend NPUs and CPUs.

{commands}

  asr-ascend COMMAND --help   what a command takes
  asr-ascend --version        versions of this package, of torch and of the loss's kernels"""


def _version() -> str:
    """This package's version, torch's, and what the loss runs on here."""
    import torch

    from asr_ascend.losses import available_backends
    from asr_ascend.losses.backends import cpu_library

    lines = [f"asr-ascend {__version__}", f"torch {torch.__version__}", cpu_library.describe()]
    return "\n".join([*lines, f"backends of the loss here: {', '.join(available_backends())}"])


if __name__ == "__main__":
    sys.exit(main())
