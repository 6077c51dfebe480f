"""RNN-T training for streaming speech recognition on Ascend NPUs and CPUs.

Nothing is imported here, so that ``from asr_ascend.losses import rnnt_loss`` needs torch alone.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("asr-ascend")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
