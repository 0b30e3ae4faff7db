"""Facts as JSON: dataclasses as objects, ids in Kafka's text form. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kbroker.types import TopicPartition, Uuid, uuid_to_str


def plain(value: object) -> object:
    """A value of facts as what ``json`` takes."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return uuid_to_str(Uuid(value)) if len(value) == 16 else f"{len(value)} bytes"
    if isinstance(value, TopicPartition):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(str(each) for each in value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")
