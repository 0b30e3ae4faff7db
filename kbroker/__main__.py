"""``python -m kbroker`` is the command ``kbroker``."""

import sys

from kbroker.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
