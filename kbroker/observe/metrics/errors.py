"""The error codes of a response: where each message has them is looked up once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, cast

from kbroker.wire.schema import struct_spec

_NAMES: Final = ("error_code", "partition_error_code")


class _ErrorFields(NamedTuple):
    """Where a struct has errors: its own field (empty without one), and fields that hold structs with errors."""

    own: str
    inner: tuple[tuple[str, bool, _ErrorFields], ...]
    """Name, whether it is a list, the struct's place."""


def error_codes(response: object) -> Iterator[int]:
    """The codes other than NONE that a response holds, of the whole and of its parts (``errorCounts`` in Kafka)."""
    return _codes(response, _place_of(cast("Hashable", type(response))))


def _codes(struct: object, place: _ErrorFields) -> Iterator[int]:
    own, inner = place
    if own and (code := getattr(struct, own)):
        yield code
    for name, is_list, below in inner:
        value = getattr(struct, name)
        if not value:
            continue
        if is_list and not below.inner:
            field = below.own
            for each in value:
                if code := getattr(each, field):
                    yield code
        else:
            for each in value if is_list else (value,):
                yield from _codes(each, below)


@cache
def _place_of(struct: Hashable) -> _ErrorFields:
    own, inner = "", []
    for field in struct_spec(cast("type[Any]", struct)).fields:
        if field.name in _NAMES:
            own = field.name
        element = field.type.element
        held = field.type.struct if element is None else element.struct
        if held is not None and any(below := _place_of(cast("Hashable", held))):
            inner.append((field.name, element is not None, below))
    return _ErrorFields(own, tuple(inner))
