"""k2: its losses over a joiner's output, full and pruned, as icefall's recipes call them."""

from __future__ import annotations

from asr_ascend.plugins.fast_rnnt import install

__all__ = ["install"]
