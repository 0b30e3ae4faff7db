"""Builders for the tables of absent properties."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kbroker.config.definition import ConfigKey, invalid_value


def missing(reason: str, *keys: ConfigKey) -> list[ConfigKey]:
    """``keys`` as properties without effect: kbroker does not have what they belong to, as ``reason`` says."""
    return [replace(key, no_effect=reason) for key in keys]


@dataclass(frozen=True, slots=True)
class _Text:
    may_be_empty: bool

    def __call__(self, name: str, value: Any) -> None:
        if value is None and self.may_be_empty:
            raise invalid_value(name, None, "entry must be non null")
        if value == "" and not self.may_be_empty:
            raise invalid_value(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-null string" if self.may_be_empty else "non-empty string"


NOT_NULL = _Text(may_be_empty=True)
NOT_EMPTY = _Text(may_be_empty=False)
