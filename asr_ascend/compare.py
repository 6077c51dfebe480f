"""Compares two evaluations: ``python -m asr_ascend.compare --help``."""

import sys

from asr_ascend.evaluation.two_reports import main

if __name__ == "__main__":
    sys.exit(main())
