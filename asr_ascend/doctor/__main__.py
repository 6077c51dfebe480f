"""``python -m asr_ascend.doctor``."""

import sys

from asr_ascend.doctor.command import main

if __name__ == "__main__":
    sys.exit(main())
