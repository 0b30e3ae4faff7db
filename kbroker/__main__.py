"""``python -m kbroker`` is the command ``kbroker``."""

import gc
import sys


def main() -> int:
    """Run the command line; Ctrl-C ends it quietly, while it is imported too."""
    gc.disable()  # what is imported stays; for what commands make, they turn it on
    try:
        from kbroker.tools.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
