"""Masking: what of records the console never shows. Pure.

A rule names topics by a pattern (``orders-*``) and what is hidden in their records: ``key``, ``value``, ``headers``, or
a path into JSON (``$.customer.email``; a path goes through arrays, too). Where a value is not JSON, a rule with a path
hides all of it: what cannot be looked into must not be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from kbroker.client.records_io.json_types import Json, JsonPath, load_json, parse_path, to_bytes
from kbroker.wire.record_batch import Record

MASK: Final = "•••"
"""Stands where something is hidden."""

MASKED: Final = MASK.encode()

_WHOLE: Final = ("key", "value", "headers")


@dataclass(frozen=True, slots=True)
class MaskRule:
    """One rule: a pattern of topics, the whole parts that are hidden, and paths into values that are JSON."""

    topics: str
    parts: frozenset[str]
    paths: tuple[JsonPath, ...]


def parse_mask(text: str) -> MaskRule:
    """``TOPICS=WHAT[,WHAT...]``; ``ValueError`` says what is wrong."""
    topics, equals, rest = text.partition("=")
    words = [word.strip() for word in rest.split(",")]
    if not topics.strip() or not equals or not all(words):
        raise ValueError(f"{text!r} is not of the form TOPICS=key|value|headers|$.path[,...]")
    parts: set[str] = set()
    paths: list[JsonPath] = []
    for word in words:
        if word in _WHOLE:
            parts.add(word)
        else:
            paths.append(parse_path(word))
    return MaskRule(topics.strip(), frozenset(parts), tuple(paths))


class Masking:
    """The rules that hold for one topic, put together."""

    def __init__(self, rules: Iterable[MaskRule], topic: str) -> None:
        found = [rule for rule in rules if fnmatchcase(topic, rule.topics)]
        self.parts = frozenset(part for rule in found for part in rule.parts)
        """Of ``key``, ``value`` and ``headers``, those that are hidden as a whole."""
        self.paths: tuple[JsonPath, ...] = tuple(path for rule in found for path in rule.paths)
        """The paths that are hidden in values that are JSON."""

    def __bool__(self) -> bool:
        return bool(self.parts or self.paths)

    def apply(self, record: Record) -> Record:
        """The record as it may be shown; null stays null, for it tells nothing."""
        if not self:
            return record
        key = MASKED if "key" in self.parts and record.key is not None else record.key
        value = record.value
        if value is not None:
            value = MASKED if "value" in self.parts else self._mask_paths(value)
        headers: Sequence[tuple[str, bytes | None]] = record.headers
        if "headers" in self.parts:
            headers = tuple((name, None if content is None else MASKED) for name, content in headers)
        return Record(record.offset, record.timestamp, key, value, tuple(headers))

    def _mask_paths(self, value: bytes) -> bytes:
        if not self.paths:
            return value
        try:
            document = load_json(value)
            for path in self.paths:
                document = _masked(document, path)
            return to_bytes(document)
        except (ValueError, RecursionError):
            return MASKED


def _masked(document: Json, path: JsonPath) -> Json:
    """The document with the mask in place of whatever the path leads to."""
    if not path:
        return MASK
    step, rest = path[0], path[1:]
    if isinstance(document, list):
        if isinstance(step, int):
            return [_masked(each, rest) if index == step else each for index, each in enumerate(document)]
        return [_masked(each, path) for each in document]
    if isinstance(document, dict) and isinstance(step, str):
        return {name: _masked(each, rest) if name == step else each for name, each in document.items()}
    return document
