"""``python -m asr_ascend.data.synthesis``: see its ``--help``."""

import sys

from asr_ascend.data.synthesis.corpus import main

if __name__ == "__main__":
    sys.exit(main())
