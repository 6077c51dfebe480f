"""``python -m asr_ascend.data.noise``: see its ``--help``."""

import sys

from asr_ascend.data.noise.command import main

if __name__ == "__main__":
    sys.exit(main())
