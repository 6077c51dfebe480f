"""``python -m asr_ascend.data.importing``: see its ``--help``."""

import sys

from asr_ascend.data.importing.command import main

if __name__ == "__main__":
    sys.exit(main())
