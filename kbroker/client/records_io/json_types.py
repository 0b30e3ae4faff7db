"""JSON as values of Python, its reader, and paths into it: ``$.customer.addresses[0].city`` and ``$['odd name']``."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON document."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


class ExactFloat(float):
    """A number with a point or an exponent, and its text, which may say more than a double holds."""

    text: str

    def __new__(cls, text: str) -> ExactFloat:
        made = super().__new__(cls, text)
        made.text = text
        return made


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_EXACT: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=ExactFloat)


def load_json(data: bytes, *, exact: bool = False) -> Json:
    """A document; ``ValueError`` for what is none, NaN and Infinity included, and for one that is nested too deep.

    ``exact``: broken numbers are each an `ExactFloat`.
    """
    try:
        document: Json = (_EXACT if exact else _DECODER).decode(data.decode())
    except RecursionError:
        raise ValueError("nested too deep") from None
    return document


def to_bytes(document: Json, *, indent: int | None = None) -> bytes:
    """A document in UTF-8; ``RecursionError`` if it is nested too deep.

    Half a surrogate pair, which JSON can name and UTF-8 cannot, stays an escape; so do all others beside it then.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    try:
        return json.dumps(document, indent=indent, separators=separators, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(document, indent=indent, separators=separators).encode()


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
