"""Averages checkpoints: ``python -m asr_ascend.average --help``."""

import sys

from asr_ascend.checkpoints.average import main

if __name__ == "__main__":
    sys.exit(main())
