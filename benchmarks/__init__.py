"""Measures the losses of asr_ascend: speed, memory and numbers, beside other implementations.

Not part of the installed package; run from the checkout. ``python -m benchmarks --help``.
"""
