"""The operations of a schema registry, with the rules and the errors of Confluent's."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kbroker.client.schemas.registry import AVRO, PROTOBUF, BoundedCache
from kbroker.registry.avro_compatibility import Misfit, misfits
from kbroker.registry.formats import InvalidSchema, Parsed, parse
from kbroker.registry.state import (
    CONTEXT_SIGN,
    LEVELS,
    MODES,
    NONE,
    READWRITE,
    Change,
    Reference,
    State,
    Version,
    references_of,
)
from kbroker.registry.store import Store
from kbroker.value_types import NamedTuple

T = TypeVar("T")

_MAX_ID: Final = 2**31 - 1
_LATEST: Final = ("latest", "-1")
_READ_ONLY: Final = ("READONLY", "READONLY_OVERRIDE")
_KEPT: Final = 500
"""Schemas that are not parsed again: parsed they take ten times the memory of their texts."""
_IDENTITIES: Final = 100_000
"""Texts that are known to be the same schema as another, or not: a new schema is compared with all."""


class Problem(Exception):
    """A request that is refused. The first digits of ``code`` are the status of HTTP."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Candidate(NamedTuple):
    """A schema that a client gives."""

    kind: str
    parsed: Parsed
    references: tuple[Reference, ...]
    extras: Mapping[str, Any]
    id: int | None
    version: int | None

    @property
    def identity(self) -> Identity:
        """Returns what makes it the same schema as another."""
        return Identity.of(self.kind, self.parsed.canonical, self.references, self.extras)


class Identity(NamedTuple):
    """A digest of what is equal for equal schemas, however each is laid out."""

    digest: bytes
    guid: str
    """The number that is the same in all registries."""

    @classmethod
    def of(cls, kind: str, canonical: str, references: Sequence[Reference], extras: Mapping[str, Any]) -> Identity:
        """Returns the identity of a schema with its references and what clients keep with it."""
        kept = sorted((name, each) for name, each in extras.items() if each)
        text = repr((kind, canonical, sorted(references), kept)).encode()
        guid = uuid.UUID(bytes=hashlib.md5(text, usedforsecurity=False).digest())
        return cls(hashlib.sha256(text).digest(), str(guid))


class Registry:
    """Schemas in a topic. Threads may share it. ``Problem`` is raised for what is refused."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parsed: BoundedCache[tuple[Any, ...], Parsed] = BoundedCache(_KEPT)
        self._identities: BoundedCache[tuple[Any, ...], Identity] = BoundedCache(_IDENTITIES)

    # --- schemas by id

    def schema(self, schema_id: int, *, format: str = "") -> dict[str, Any]:
        """Returns a schema by its id."""
        return self._store.look(lambda state: self._told(state, _with_id(state, schema_id), format))

    def highest_id(self) -> int:
        """Returns the highest id that a schema has had."""
        return self._store.look(lambda state: state.highest_id)

    def schema_with_guid(self, guid: str, *, format: str = "") -> dict[str, Any]:
        """Returns a schema by the number that is the same in all registries."""

        def find(state: State) -> dict[str, Any]:
            for versions in state.by_id.values():
                version = next(iter(versions.values()))
                if guid.lower() in (self._identity(state, version).guid, _guid_elsewhere(version)):
                    return self._told(state, version, format)
            raise Problem(40403, f"Schema {guid} not found")

        return self._store.look(find)

    def places(self, schema_id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """Returns the subjects that have a schema, and the versions that it is there."""

        def find(state: State) -> list[tuple[str, int]]:
            _with_id(state, schema_id)
            return sorted(place for place, each in state.by_id[schema_id].items() if deleted or not each.is_deleted)

        return self._store.look(find)

    def _told(self, state: State, version: Version, format: str) -> dict[str, Any]:
        """The fields that tell a schema."""
        text = version.text
        if format == "serialized" and version.kind == PROTOBUF:
            text = self._parse(state, version.kind, text, version.references).serialized or text
        elif format not in ("", "default"):
            raise Problem(42201, f"A schema of type {version.kind} has no format {format}")
        told = {"guid": self._identity(state, version).guid, "schema": text}
        if version.kind != AVRO:
            told["schemaType"] = version.kind
        references = {"references": [each.document() for each in version.references]} if version.references else {}
        return told | references | version.extras

    # --- subjects

    def subjects(self, *, prefix: str = "", deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Returns the names of the subjects."""

        def find(state: State) -> list[str]:
            found = []
            for subject in sorted(state.subjects):
                live = bool(state.versions(subject))
                if subject.startswith(prefix) and (not live if deleted_only else deleted or live):
                    found.append(subject)
            return found

        return self._store.look(find)

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        """Returns the numbers of a subject's versions."""

        def find(state: State) -> list[int]:
            found = state.versions(subject, deleted=deleted or deleted_only)
            if not found:
                raise _no_subject(subject)
            return [each.version for each in found if each.is_deleted or not deleted_only]

        return self._store.look(find)

    def version(self, subject: str, version: str, *, deleted: bool = False, format: str = "") -> dict[str, Any]:
        """Returns a version of a subject."""
        return self._store.look(
            lambda state: self._told_version(state, _version(state, subject, version, deleted=deleted), format)
        )

    def all_versions(self, *, prefix: str, deleted: bool, latest_only: bool) -> list[dict[str, Any]]:
        """Returns the versions of all subjects that begin so."""

        def find(state: State) -> list[dict[str, Any]]:
            chosen = (
                state.versions(each, deleted=deleted) for each in sorted(state.subjects) if each.startswith(prefix)
            )
            found = [each for versions in chosen for each in (versions[-1:] if latest_only else versions)]
            return [self._told_version(state, each, "") for each in found]

        return self._store.look(find)

    def _told_version(self, state: State, version: Version, format: str) -> dict[str, Any]:
        place = {"subject": version.subject, "version": version.version, "id": version.id}
        mark = {"deleted": True} if version.is_deleted else {}
        return place | self._told(state, version, format) | mark

    def referring(self, subject: str, version: str, *, deleted: bool = False) -> list[int]:
        """Returns the ids of the schemas that refer to a version."""

        def find(state: State) -> list[int]:
            found = _version(state, subject, version, deleted=deleted)
            return sorted({each.id for each in state.referring(subject, found.version)})

        return self._store.look(find)

    def lookup(
        self, subject: str, document: Any, *, normalize: bool, deleted: bool, format: str = ""
    ) -> dict[str, Any]:
        """Returns the version of a subject that has a schema already."""

        def find(state: State) -> dict[str, Any]:
            versions = state.versions(subject, deleted=deleted)
            if not versions:
                raise _no_subject(subject)
            _, found = self._registered(state, subject, self._candidate(state, subject, document, normalize), versions)
            if found is None:
                raise Problem(40403, "Schema not found")
            return self._told_version(state, found, format)

        return self._store.look(find)

    # --- registering

    def register(self, subject: str, document: Any, *, normalize: bool) -> dict[str, Any]:
        """Register a schema as a subject's next version, unless it has it; the id, and what else is known of it."""
        _check_subject(subject)

        def decide(state: State) -> tuple[list[Change], dict[str, Any]]:
            candidate = self._candidate(state, subject, document, normalize)
            candidate, version = self._registered(state, subject, candidate, state.versions(subject))
            if version is not None and candidate.id in (None, version.id):
                return [], self._told_version(state, version, "")
            _may_register(state, subject, candidate)
            if candidate.id is None:
                self._check_level(state, subject, candidate)
            version = self._new_version(state, subject, candidate)
            records = [state.record("SCHEMA", subject, version.value, version.version)]
            return records, self._told_version(state, version, "")

        return self._store.change(decide)

    def _new_version(self, state: State, subject: str, candidate: Candidate) -> Version:
        number = candidate.version
        next_number = max(state.subjects.get(subject, {0: None})) + 1
        if number is not None and candidate.id is None and number != next_number:
            raise Problem(42201, f"The version is to be {next_number}, not {number}")
        value: dict[str, Any] = {"subject": subject, "version": number or next_number, "id": candidate.id or 0}
        if candidate.kind != AVRO:
            value["schemaType"] = candidate.kind
        if candidate.references:
            value["references"] = [each.document() for each in candidate.references]
        value |= {name: each for name, each in candidate.extras.items() if each}
        value |= {"schema": candidate.parsed.text, "deleted": False}
        if candidate.id is None:
            newest = (next(iter(state.by_id[each].values())) for each in sorted(state.by_id, reverse=True))
            same = self._same(state, newest, candidate)
            value["id"] = state.highest_id + 1 if same is None else same.id
            if value["id"] > _MAX_ID:
                raise Problem(42205, "All ids are taken")
        else:
            same = state.with_id(candidate.id)
            if same is not None and self._identity(state, same) != candidate.identity:
                raise Problem(42205, f"Overwrite new schema with id {candidate.id} is not permitted.")
            if value["version"] in state.subjects.get(subject, ()):
                raise Problem(42205, f"Version {value['version']} of subject {subject} is another schema.")
        if same is not None:  # an id has one text: who reads the topic takes another one for another schema
            value["schema"] = same.text
        return Version.of(value)

    def _candidate(self, state: State, subject: str, document: Any, normalize: bool) -> Candidate:
        if not isinstance(document, dict) or not isinstance(document.get("schema"), str) or not document["schema"]:
            raise Problem(42201, "Invalid schema: the body is to be an object of JSON with a schema, as text")
        known = ("schema", "schemaType", "references", "metadata", "ruleSet", "id", "version", "guid", "subject")
        if unknown := [each for each in document if each not in known]:
            raise Problem(42201, f"Invalid schema: nothing is done here with {unknown[0]!r}")
        kind, number, version = document.get("schemaType") or AVRO, document.get("id"), document.get("version")
        if not isinstance(kind, str):
            raise Problem(42201, "Invalid schema: schemaType is to be a text")
        for each in (number, version):
            if each is not None and not (type(each) is int and -1 <= each <= _MAX_ID):
                raise Problem(42201, f"Invalid schema: {each!r} is neither an id nor a version")
        try:
            references = references_of(document.get("references"))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Problem(42201, "Invalid schema: a reference has a name, a subject and a version") from None
        try:
            parsed = self._parse(state, kind, document["schema"], references)
        except InvalidSchema as error:
            raise Problem(42201, f"Invalid schema of type {kind}, details: {error}") from None
        if (normalize or state.normalizes(subject)) and kind != PROTOBUF:
            parsed = parsed._replace(text=parsed.canonical)
        extras = {name: document[name] for name in ("metadata", "ruleSet") if document.get(name) is not None}
        if not all(isinstance(each, dict) for each in extras.values()):
            raise Problem(42201, "Invalid schema: metadata and ruleSet are objects of JSON")
        given = [each if each is not None and each > 0 else None for each in (number, version)]
        return Candidate(kind, parsed, references, extras, *given)

    def _parse(self, state: State, kind: str, text: str, references: Sequence[Reference]) -> Parsed:
        try:
            needed = tuple(state.texts_of(references))
        except KeyError as error:
            raise InvalidSchema(f"a reference leads nowhere: there is no {error.args[0]}") from None
        except RecursionError:  # no registry takes such schemas, but anybody may write to a topic
            raise InvalidSchema("its references lead in a circle, or too far") from None
        key = (kind, text, needed)
        return self._parsed.get(key) or self._parsed.put(key, parse(kind, text, needed))

    def _identity(self, state: State, version: Version) -> Identity:
        key = (version.kind, version.text, version.references, repr(version.extras))
        if (kept := self._identities.get(key)) is not None:
            return kept
        try:
            canonical = self._parse(state, version.kind, version.text, version.references).canonical
        except InvalidSchema:  # another registry has taken it: it is the same as its own text alone
            return Identity.of(version.kind, version.text, version.references, version.extras)
        return self._identities.put(key, Identity.of(version.kind, canonical, version.references, version.extras))

    def _same(
        self, state: State, versions: Iterator[Version] | Sequence[Version], candidate: Candidate
    ) -> Version | None:
        identity = candidate.identity
        alike = (each for each in versions if each.kind == candidate.kind)
        return next((each for each in alike if self._identity(state, each) == identity), None)

    def _registered(
        self, state: State, subject: str, candidate: Candidate, versions: Sequence[Version]
    ) -> tuple[Candidate, Version | None]:
        """Returns the version that a schema is, and the schema with what clients keep with it.

        Where nothing is said of that, it is what the latest version has: a serializer sends a schema alone, and is not
        to take rules, of encryption say, away by that.
        """
        found = self._same(state, versions, candidate)
        latest = state.versions(subject)[-1:]
        if found is None and latest and candidate.id is None:
            candidate = candidate._replace(extras={**latest[0].extras, **candidate.extras})
            found = self._same(state, versions, candidate)
        return candidate, found

    # --- compatibility

    def compatibility(
        self, subject: str, version: str | None, document: Any, *, normalize: bool, verbose: bool
    ) -> dict[str, Any]:
        """Returns whether a schema may become a subject's next version: by its level, or (``version``) by one alone."""

        def judge(state: State) -> dict[str, Any]:
            candidate = self._candidate(state, subject, document, normalize)
            level, versions = state.level(subject), state.versions(subject)
            if version is None:
                against = _judged_by(level, versions)
            elif version in _LATEST:
                against = versions[-1:]
            else:
                against = [_version(state, subject, version)]
            found = self._misfits(state, subject, candidate, level, against)
            return {"is_compatible": not found} | ({"messages": found} if verbose else {})

        return self._store.look(judge)

    def _check_level(self, state: State, subject: str, candidate: Candidate) -> None:
        level = state.level(subject)
        if found := self._misfits(state, subject, candidate, level, _judged_by(level, state.versions(subject))):
            text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            raise Problem(409, f"{text}{found}")

    def _misfits(
        self, state: State, subject: str, candidate: Candidate, level: str, versions: Sequence[Version]
    ) -> list[str]:
        """Returns why a schema does not go with versions of its subject, by a level."""
        if level == NONE:
            return []
        found: list[str] = []
        for version in versions:
            if version.kind != candidate.kind:
                found.append(f"version {version.version} is of type {version.kind}, not {candidate.kind}")
                continue
            if self._identity(state, version) == candidate.identity:
                continue
            try:
                old, new = (
                    self._parse(state, version.kind, version.text, version.references).avro,
                    candidate.parsed.avro,
                )
            except InvalidSchema as error:
                raise Problem(42201, f"Version {version.version} of '{subject}' cannot be read: {error}") from None
            if old is None or new is None:
                raise Problem(
                    42205,
                    f"Nothing here checks whether schemas of type {candidate.kind} are compatible: set the level of"
                    f" subject '{subject}' to NONE (it is {level}) to register another version.",
                )
            pairs = [("new", "old", new, old)] if not level.startswith("FORWARD") else []
            pairs += [("old", "new", old, new)] if not level.startswith("BACKWARD") else []
            for reader, writer, *schemas in pairs:
                found += _messages(misfits(*schemas), f"the {reader} schema as reader", writer, version.version)
        return found

    # --- deleting

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject softly, or those for good that are deleted softly; their numbers."""

        def decide(state: State) -> tuple[list[Change], list[int]]:
            _may_change(state, subject)
            versions, live = state.versions(subject, deleted=True), state.versions(subject)
            if not versions:
                raise _no_subject(subject)
            if permanent and live:
                raise Problem(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
            if not permanent and not live:
                raise Problem(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")
            chosen = versions if permanent else live
            for each in chosen:
                _check_references(state, each, permanent=permanent, within=subject)
            numbers = [each.version for each in chosen]
            if permanent:
                gone = [state.record("SCHEMA", subject, None, each) for each in numbers]
                return [state.highest_record(), *gone], numbers
            records = [state.record("DELETE_SUBJECT", subject, {"subject": subject, "version": numbers[-1]})]
            records += [state.record("MODE", subject, None)] if subject in state.modes else []
            records += [state.record("CONFIG", subject, None)] if subject in state.levels else []
            return records, numbers

        return self._store.change(decide)

    def delete_version(self, subject: str, version: str, *, permanent: bool) -> int:
        """Delete a version softly, or for good one that is deleted softly; its number."""

        def decide(state: State) -> tuple[list[Change], int]:
            _may_change(state, subject)
            found = _version(state, subject, version, deleted=True)
            named = f"Subject '{subject}' Version {found.version}"
            if permanent and not found.is_deleted:
                raise Problem(40407, f"{named} was not deleted first before being permanently deleted")
            if not permanent and found.is_deleted:
                raise Problem(40406, f"{named} was soft deleted. Set permanent=true to delete permanently")
            _check_references(state, found, permanent=permanent)
            value = None if permanent else found.change(deleted=True)
            first = [state.highest_record()] if permanent else []
            return [*first, state.record("SCHEMA", subject, value, found.version)], found.version

        return self._store.change(decide)

    # --- levels and modes

    def config(self, subject: str | None, *, default_to_global: bool = False) -> dict[str, Any]:
        """Returns the level of a subject, or (None) of all others."""

        def find(state: State) -> dict[str, Any]:
            own = state.levels.get(subject)
            if own is None and subject is not None and not default_to_global:
                raise Problem(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
            settings = {"compatibilityLevel": state.level("" if subject is None else subject)}
            return settings | {name: each for name, each in (own or {}).items() if name not in ("subject", *settings)}

        return self._store.look(find)

    def set_config(self, subject: str | None, document: Any) -> dict[str, Any]:
        """Set the level of a subject, or (None) of all others."""
        _check_subject(subject)
        given = dict(document) if isinstance(document, dict) else {}
        level = given.pop("compatibility", None) or given.pop("compatibilityLevel", None)
        normalize = given.pop("normalize", None)
        if unknown := [name for name, each in given.items() if each is not None]:
            raise Problem(42203, f"There are compatibility and normalize here; nothing is done with {unknown[0]!r}")
        if (level is None and normalize is None) or (level is not None and level not in LEVELS):
            text = f"Invalid compatibility level. Valid values are {', '.join(LEVELS[:-1])}, and {LEVELS[-1]}"
            raise Problem(42203, text)
        if normalize not in (None, True, False):
            raise Problem(42203, "normalize is to be true or false")

        def decide(state: State) -> tuple[list[Change], dict[str, Any]]:
            _may_change(state, subject)
            changed = {"compatibilityLevel": level, "normalize": normalize}
            changed = {name: each for name, each in changed.items() if each is not None}
            value = {**({} if subject is None else {"subject": subject}), **state.levels.get(subject, {}), **changed}
            return [state.record("CONFIG", subject, value)], changed

        changed = self._store.change(decide)
        return {"compatibility" if name == "compatibilityLevel" else name: each for name, each in changed.items()}

    def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Have the level of all others hold for a subject again, or (None) that of the beginning; what it was."""
        before = self._delete_setting("CONFIG", subject, lambda state: state.levels)
        return {name: each for name, each in before.items() if name != "subject"}

    def mode(self, subject: str | None, *, default_to_global: bool = False) -> dict[str, Any]:
        """Returns the mode of a subject, or (None) of all others."""

        def find(state: State) -> dict[str, Any]:
            if subject is not None and not default_to_global and subject not in state.modes:
                raise Problem(40409, f"Subject '{subject}' does not have subject-level mode configured")
            return {"mode": state.mode(subject)}

        return self._store.look(find)

    def set_mode(self, subject: str | None, document: Any, *, force: bool = False) -> dict[str, Any]:
        """Set the mode of a subject, or (None) of all others."""
        _check_subject(subject)
        mode = document.get("mode") if isinstance(document, dict) else None
        if mode not in MODES:
            raise Problem(42204, f"Invalid mode. Valid values are {', '.join(MODES[:-1])}, and {MODES[-1]}")

        def decide(state: State) -> tuple[list[Change], dict[str, Any]]:
            chosen = list(state.subjects) if subject is None else [subject]
            found = mode == "IMPORT" and state.mode(subject) != mode and any(map(state.versions, chosen))
            if found and not force:
                raise Problem(42205, "Cannot import since found existing subjects")
            value = {**({} if subject is None else {"subject": subject}), "mode": mode}
            return [state.record("MODE", subject, value)], {"mode": mode}

        return self._store.change(decide)

    def delete_mode(self, subject: str | None) -> dict[str, Any]:
        """Have the mode of all others hold for a subject again, or (None) READWRITE; what it was."""
        return {"mode": self._delete_setting("MODE", subject, lambda state: state.modes)}

    def _delete_setting(self, kind: str, subject: str | None, place: Callable[[State], dict[str | None, T]]) -> T:
        def decide(state: State) -> tuple[list[Change], T]:
            if kind == "CONFIG":
                _may_change(state, subject)
            if subject not in place(state):
                raise _no_subject("" if subject is None else subject)
            return [state.record(kind, subject, None)], place(state)[subject]

        return self._store.change(decide)


def _guid_elsewhere(version: Version) -> str:
    """Returns the number that Confluent's registry gives a schema, if clients keep nothing with it: records have it."""
    digest = hashlib.md5(version.text.encode("utf-8", "replace"), usedforsecurity=False)
    for each in version.references:
        digest.update(
            f"{each.name}{each.subject}".encode("utf-8", "replace") + (each.version & 2**32 - 1).to_bytes(4, "big")
        )
    return str(uuid.UUID(bytes=digest.digest()))


def _check_subject(subject: str | None) -> None:
    if subject is not None and (subject.startswith(CONTEXT_SIGN) or not subject or not subject.isprintable()):
        raise Problem(42208, f"The specified subject '{subject}' is not a valid subject.")


def _no_subject(subject: str) -> Problem:
    return Problem(40401, f"Subject '{subject}' not found.")


def _with_id(state: State, schema_id: int) -> Version:
    version = state.with_id(schema_id)
    if version is None:
        raise Problem(40403, f"Schema {schema_id} not found")
    return version


def _version(state: State, subject: str, version: str, *, deleted: bool = False) -> Version:
    """A version by its number, or the last that is not deleted."""
    versions = state.versions(subject, deleted=deleted)
    is_latest = version in _LATEST
    if not is_latest and not (
        version.isascii() and version.isdigit() and len(version) < 11 and 0 < int(version) <= _MAX_ID
    ):
        text = f"The specified version '{version}' is not a valid version id."
        raise Problem(42202, f'{text} Allowed values are between [1, 2^31-1] and the string "latest"')
    if not versions:
        raise _no_subject(subject)
    chosen = versions[-1:] if is_latest else [each for each in versions if each.version == int(version)]
    if not chosen:
        raise Problem(40402, f"Version {version} not found.")
    return chosen[0]


def _may_change(state: State, subject: str | None) -> None:
    if state.mode(subject) in _READ_ONLY:
        raise Problem(42205, f"Subject {'' if subject is None else f'{subject} '}is in read-only mode")


def _may_register(state: State, subject: str, candidate: Candidate) -> None:
    _may_change(state, subject)
    mode = state.mode(subject)
    if candidate.id is not None and mode != "IMPORT":
        raise Problem(42205, f"Subject {subject} is not in import mode")
    if candidate.id is None and mode != READWRITE:
        raise Problem(42205, f"Subject {subject} is not in read-write mode: a schema needs an id in import mode")


def _check_references(state: State, version: Version, *, permanent: bool, within: str | None = None) -> None:
    """``within``: a subject whose own versions may refer to it. What is deleted softly needs it for its records."""
    referring = state.referring(version.subject, version.version, deleted=permanent)
    if any(each.subject != within for each in referring):
        place = f"{{subject={version.subject},version={version.version}}}"
        raise Problem(42206, f"One or more references exist to the schema {place}.")


def _judged_by(level: str, versions: Sequence[Version]) -> Sequence[Version]:
    return versions if level.endswith("_TRANSITIVE") else versions[-1:]


def _messages(found: Sequence[Misfit], reader: str, writer: str, version: int) -> list[str]:
    return [f"{each} ({reader}, the {writer} one as writer, version {version})" for each in found]
