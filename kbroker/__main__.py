"""``python -m kbroker`` is the command ``kbroker``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C ends it quietly, while it is imported too."""
    try:
        from kbroker.tools.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
