"""Values that a config provider has given: often secrets, so they are neither described nor told (KIP-297)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

PROVIDERS: Final = "config.providers"
HIDDEN: Final = "[hidden]"


class Provided(str):
    """The text of a property that has, or had, a variable in it."""

    __slots__ = ()


def provided_names(properties: Mapping[str, str]) -> frozenset[str]:
    """The properties whose values are from providers."""
    return frozenset(name for name, value in properties.items() if isinstance(value, Provided))


def without_values(message: str, values: Iterable[str]) -> str:
    """A message about properties that does not tell the values that are from providers."""
    for value in values:
        if isinstance(value, Provided) and value.strip():
            message = re.sub(rf"(?<!\w){re.escape(value.strip())}(?!\w)", HIDDEN, message)
    return message
