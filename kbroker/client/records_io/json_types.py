"""JSON as values of Python, and its reader."""

from __future__ import annotations

import json
from typing import Final, NoReturn, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON document."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name}")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def load_json(data: bytes) -> Json:
    """A document; ``ValueError`` for what is none, NaN and Infinity included, and for one that is nested too deep."""
    try:
        document: Json = _DECODER.decode(data.decode())
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
