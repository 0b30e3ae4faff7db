"""The pictures of docs/console.md, out of the screenshots that these tests have made.

make compat ONLY=compat_tests/console && python -m compat_tests.console.pictures
"""

from __future__ import annotations

from pathlib import Path

from compat_tests.console.conftest import SCREENSHOTS

PICTURES = Path(__file__).parents[2] / "docs" / "static" / "console"

NAMES = ("troubles-light", "records-light", "log-light", "protocol-light", "stands-light")


def main() -> None:
    """Write each with 64 colours, which is a third of the bytes."""
    from PIL import Image

    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        with Image.open(SCREENSHOTS / f"{name}.png") as shot:
            shot.convert("RGB").quantize(64).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
