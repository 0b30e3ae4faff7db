"""The schemas, levels and modes that the records of ``_schemas`` tell, in Confluent's format. Pure.

A record's key is an object of JSON with a ``keytype``, its value the content, or none where it is deleted. Records of
kinds that are not known here change nothing, and stay in the topic; so do fields that are not known, when a record is
written anew. A key is written as it was found: compaction goes by its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kbroker.client.schemas.registry import AVRO
from kbroker.value_types import NamedTuple

READWRITE: Final = "READWRITE"
NONE: Final = "NONE"
LEVELS: Final = (NONE, *(f"{each}{reach}" for each in ("BACKWARD", "FORWARD", "FULL") for reach in ("", "_TRANSITIVE")))
MODES: Final = (READWRITE, "READONLY", "READONLY_OVERRIDE", "IMPORT")
_DEFAULT_LEVEL: Final = "BACKWARD"
_MAGIC: Final[Mapping[str, int]] = {"SCHEMA": 1}
CONTEXT_SIGN: Final = ":."
"""Begins the subjects of contexts, whose ids are of their own; there is none here but the default one."""

Change = tuple[bytes, bytes | None]
"""Key and value of a record; no value deletes what the key names."""


class Unreadable(Exception):
    """A record of the topic that cannot be understood, and why."""


class Reference(NamedTuple):
    """The name by which a schema refers to another, and which one that is."""

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, Any]:
        """Returns it as it is told and kept."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


class Version(NamedTuple):
    """A version of a subject, by the value of its record."""

    subject: str
    version: int
    id: int
    text: str
    kind: str
    references: tuple[Reference, ...]
    is_deleted: bool
    value: Mapping[str, Any]

    @property
    def extras(self) -> dict[str, Any]:
        """Returns what clients keep with a schema besides."""
        return {name: self.value[name] for name in ("metadata", "ruleSet") if self.value.get(name)}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Version:
        """By a record's value; ``Unreadable`` if that is none."""
        try:
            references = references_of(value.get("references"))
            place = (str(value["subject"]), int(value["version"]), int(value["id"]), str(value["schema"]))
            kind, deleted = str(value.get("schemaType") or AVRO), bool(value.get("deleted", False))
        except (KeyError, TypeError, ValueError, OverflowError) as error:  # 1e400 is JSON, and no whole number
            raise Unreadable(f"the schema has no {error}") from None
        return cls(*place, kind, references, deleted, value)

    def change(self, *, deleted: bool) -> Mapping[str, Any]:
        """Returns the value of its record when it is deleted, or is no more."""
        return {**self.value, "deleted": deleted}


def references_of(given: Any) -> tuple[Reference, ...]:
    """References as documents have them; ``KeyError``, ``TypeError``, ``ValueError``, ``OverflowError`` for others."""
    return tuple(Reference(str(each["name"]), str(each["subject"]), int(each["version"])) for each in given or ())


class State:
    """All that the records so far have told."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        """Subject -> its versions, those that are deleted softly as well."""
        self.by_id: dict[int, dict[tuple[str, int], Version]] = {}
        self.levels: dict[str | None, Mapping[str, Any]] = {}
        """Subject (None: all others) -> the value of its CONFIG record."""
        self.modes: dict[str | None, str] = {}
        self.highest_id = 0
        self._keys: dict[tuple[str, str | None, int | None], bytes] = {}

    # --- records in

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record. ``Unreadable`` changes nothing."""
        names, content = _document(key, "key"), None if not value else _document(value, "value")
        if names is None:
            raise Unreadable("it has no key")
        kind, subject = names.get("keytype"), names.get("subject")
        if not (subject is None or isinstance(subject, str)) or (subject or "").startswith(CONTEXT_SIGN):
            return
        if kind == "SCHEMA":
            self._take_schema(names, content)
        elif kind == "CONFIG":
            if content is not None and content.get("compatibilityLevel", NONE) not in LEVELS:
                raise Unreadable(f"there is no level {content['compatibilityLevel']}")
            _put(self.levels, subject, content)
        elif kind == "MODE":
            if content is not None and content.get("mode") not in MODES:
                raise Unreadable(f"there is no mode {content.get('mode')}")
            _put(self.modes, subject, None if content is None else content["mode"])
        elif content is not None and kind == "NOOP":
            highest = content.get("highestId")
            self.highest_id = max(self.highest_id, highest if type(highest) is int else 0)
        elif content is not None and kind in ("DELETE_SUBJECT", "CLEAR_SUBJECT"):
            self._delete(str(content.get("subject")), content.get("version"), for_good=kind == "CLEAR_SUBJECT")
        self._keys[str(kind), subject, names.get("version")] = key or b""

    def _take_schema(self, names: Mapping[str, Any], content: Mapping[str, Any] | None) -> None:
        if content is None:
            self._forget(str(names.get("subject")), names.get("version"))
            return
        version = Version.of(content)
        place = (version.subject, version.version)
        if place != (names.get("subject"), names.get("version")):
            raise Unreadable("its key names another schema than its value")
        others = [each for where, each in self.by_id.get(version.id, {}).items() if where != place]
        if others and not _is_same(others[0].text, version.text):
            raise Unreadable(f"id {version.id} is that of another schema")
        self._forget(*place)
        self.subjects.setdefault(version.subject, {})[version.version] = version
        self.by_id.setdefault(version.id, {})[place] = version
        self.highest_id = max(self.highest_id, version.id)

    def _forget(self, subject: str, number: Any) -> None:
        version = self.subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self.subjects[subject]:
            del self.subjects[subject]
        del self.by_id[version.id][subject, number]
        if not self.by_id[version.id]:
            del self.by_id[version.id]

    def _delete(self, subject: str, last: Any, *, for_good: bool) -> None:
        for version in list(self.subjects.get(subject, {}).values()):
            if for_good and version.is_deleted:
                self._forget(subject, version.version)
            elif not for_good and isinstance(last, int) and version.version <= last:
                deleted = Version.of(version.change(deleted=True))
                self.subjects[subject][version.version] = self.by_id[version.id][subject, version.version] = deleted

    # --- records out

    def record(
        self, kind: str, subject: str | None, value: Mapping[str, Any] | None, version: int | None = None
    ) -> Change:
        """Returns the record that says something of a subject, under the key that it has in the topic already."""
        key = self._keys.get((kind, subject, version))
        if key is None:
            numbered = {} if version is None else {"version": version}
            named = {"keytype": kind, "subject": subject, **numbered, "magic": _MAGIC.get(kind, 0)}
            key = _bytes(named)
        return key, None if value is None else _bytes(value)

    def highest_record(self) -> Change:
        """Returns the record that keeps the highest id when its schema's are compacted away: to others it is nothing.

        Records in other topics may have that id still, and no other schema is to get it. Confluent's registry writes a
        record without a value, under the key of its own NOOP, when it starts: this key is another one by its bytes.
        """
        return b'{"magic":0,"keytype":"NOOP"}', _bytes({"highestId": self.highest_id})

    # --- what is there

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Returns the versions of a subject, oldest first; with ``deleted`` those that are deleted softly as well."""
        found = self.subjects.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].is_deleted]

    def with_id(self, schema_id: int) -> Version | None:
        """Returns a version that has this id, if there is any, whether it is deleted softly or not."""
        return next(iter(self.by_id.get(schema_id, {}).values()), None)

    def level(self, subject: str) -> str:
        """Returns the level by which new versions of a subject are judged."""
        settings = (self.levels.get(each, {}).get("compatibilityLevel") for each in (subject, None))
        return str(next((each for each in settings if each), _DEFAULT_LEVEL))

    def normalizes(self, subject: str) -> bool:
        """Whether schemas of a subject are normalized without being asked for."""
        settings = (self.levels.get(each, {}).get("normalize") for each in (subject, None))
        return bool(next((each for each in settings if each is not None), False))

    def mode(self, subject: str | None) -> str:
        """Returns the mode that holds for a subject."""
        overall = self.modes.get(None, READWRITE)
        return overall if overall == "READONLY_OVERRIDE" else self.modes.get(subject, overall)

    def referring(self, subject: str, version: int, *, deleted: bool = False) -> Iterator[Version]:
        """Returns the versions that refer to one; with ``deleted`` those that are deleted softly as well."""
        return (
            each
            for versions in self.subjects.values()
            for each in versions.values()
            if (deleted or not each.is_deleted)
            and any((to.subject, to.version) == (subject, version) for to in each.references)
        )

    def texts_of(self, references: Iterable[Reference]) -> list[tuple[str, str]]:
        """Returns names and texts of the schemas that are referred to, each after those that it needs itself.

        ``KeyError`` has the reference that leads nowhere.
        """
        found: dict[tuple[str, str, int], tuple[str, str]] = {}
        self._collect(references, found)
        return list(found.values())

    def _collect(self, references: Iterable[Reference], found: dict[tuple[str, str, int], tuple[str, str]]) -> None:
        for each in references:
            if each in found:
                continue
            version = self.subjects.get(each.subject, {}).get(each.version)
            if version is None:
                raise KeyError(f"version {each.version} of subject {each.subject}")
            self._collect(version.references, found)
            found[each] = (each.name, version.text)


def _put(values: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = value


def _document(data: bytes | None, what: str) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Unreadable(f"its {what} is no JSON") from None
    if found is not None and not isinstance(found, dict):
        raise Unreadable(f"its {what} is no object of JSON")
    return found


def _bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _is_same(one: str, other: str) -> bool:
    """Whether two texts are one schema; registries lay out JSON in their own ways."""
    if one == other:
        return True
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False
