"""The command line: ``python -m bmsvm``."""

import sys

from bmsvm.cli import main

if __name__ == "__main__":
    sys.exit(main())
