"""Paths into JSON: ``$.customer.addresses[0].city`` and ``$['odd name']``. Pure."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from kbroker.client.records_io.json_types import Json

JsonPath: TypeAlias = tuple[str | int, ...]
"""Names of members and indexes of elements, the outermost first."""

STEP: Final = re.compile(r"""\.([A-Za-z_][\w-]*)|\[(\d{1,9})\]|\['([^']*)'\]|\["([^"]*)"\]""")
"""One step of a path."""


def parse_path(text: str) -> JsonPath:
    """A path from its text; ``ValueError`` if it is none."""
    if not text.startswith("$"):
        raise ValueError(f"{text!r} is not a path such as $.customer.email")
    steps: list[str | int] = []
    place = 1
    while place < len(text):
        match = STEP.match(text, place)
        if match is None:
            raise ValueError(f"{text!r} is not a path such as $.customer.email: see at {text[place:]!r}")
        name, index, single, double = match.groups()
        steps.append(int(index) if index is not None else next(s for s in (name, single, double) if s is not None))
        place = match.end()
    return tuple(steps)


class Missing:
    """Stands for what a path does not lead to, which is not null."""


MISSING: Final = Missing()


def look_up(document: Json, path: JsonPath) -> Json | Missing:
    """The value that the path leads to, or ``MISSING``."""
    found: Json = document
    for step in path:
        if isinstance(step, int):
            if not isinstance(found, list) or step >= len(found):
                return MISSING
            found = found[step]
        else:
            if not isinstance(found, dict) or step not in found:
                return MISSING
            found = found[step]
    return found
