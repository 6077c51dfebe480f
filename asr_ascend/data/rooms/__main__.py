"""``python -m asr_ascend.data.rooms``: see its ``--help``."""

import sys

from asr_ascend.data.rooms.command import main

if __name__ == "__main__":
    sys.exit(main())
