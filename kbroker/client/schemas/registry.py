"""A schema registry over HTTP (Confluent's API, which Karapace, Redpanda and Apicurio serve as well).

Schemas never change once they have an id, so they are kept, the last used of them. A registry that cannot be asked is
tried again for some time, and then left alone for a moment: not every record waits for it.
"""

from __future__ import annotations

import binascii
import json
import threading
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from kbroker.client.schemas.settings import RegistrySettings
from kbroker.client.schemas.wire_format import RegistryAway, RegistryError, RegistryRefused, SchemaId, UndecodableRecord
from kbroker.config.schema_registry import TOKEN, USER_INFO
from kbroker.security.sasl.oauthbearer.http import LIMITS, Limits, ProviderError, ask
from kbroker.value_types import NamedTuple

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"

KEPT_SCHEMAS: Final = 500
_JSON_MEDIA: Final = "application/vnd.schemaregistry.v1+json"

_MISSING_SECONDS: Final = 30.0
"""For so long a schema that is not there is not asked for again."""
_REST_SECONDS: Final = 5.0
"""For so long a registry that did not answer is left alone."""
_MAX_REFERENCES: Final = 200
"""Schemas that one schema may refer to, directly and by others."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of ``limit`` values at most; the one unused for longest goes first. Threads may share it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> V:
        """Keep a value, which is given back."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._limit:
                self._values.popitem(last=False)
        return value

    def remove(self, key: K) -> None:
        """Forget a key, if it is there."""
        with self._lock:
            self._values.pop(key, None)


class Reference(NamedTuple):
    """Another schema that a schema uses under ``name``."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema as the registry has it; ``text`` of a Protobuf schema is its file descriptor in base64."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """Asks for schemas. Its calls block. ``patience``: seconds for which a registry that does not answer is tried."""

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        patience: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        kept: int = KEPT_SCHEMAS,
        limits: Limits = LIMITS,
    ) -> None:
        """``kept`` schemas are remembered; ``limits`` are those of one question."""
        self._settings = settings
        self._limits = limits
        self._patience = patience
        self._clock = clock
        self._schemas: BoundedCache[SchemaId | tuple[str, int, bool], Schema] = BoundedCache(kept)
        self._missing: BoundedCache[str, tuple[float, str]] = BoundedCache(kept)
        self._resting: tuple[float, RegistryError] | None = None
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if settings.authorization is not None:
            self._headers["Authorization"] = settings.authorization

    def schema(self, schema_id: SchemaId) -> Schema:
        """The schema of an id. :class:`UndecodableRecord` if there is none, :class:`RegistryError` if nobody tells."""
        kept = self._schemas.get(schema_id)
        if kept is not None:
            return kept
        target = f"/schemas/ids/{schema_id}" if isinstance(schema_id, int) else f"/schemas/guids/{schema_id}"
        what = f"schema {schema_id}"
        found = self._schema(self._get(target, what), what)
        if found.kind == PROTOBUF:
            found = self._schema(self._get(f"{target}?format=serialized", what), what)
            _check_serialized(found, what)
        return self._schemas.put(schema_id, found)

    def references(self, schema: Schema) -> list[tuple[str, Schema]]:
        """The schemas that one needs, each after those that it needs itself; errors as of :meth:`schema`."""
        found: dict[tuple[str, int], tuple[str, Schema]] = {}
        self._collect(schema, schema.kind == PROTOBUF, found, ())
        return list(found.values())

    def _collect(
        self,
        schema: Schema,
        serialized: bool,
        found: dict[tuple[str, int], tuple[str, Schema]],
        above: tuple[tuple[str, int], ...],
    ) -> None:
        for name, subject, version in schema.references:
            place = (subject, version)
            if place in found:
                continue
            if place in above or len(above) + len(found) >= _MAX_REFERENCES:
                raise UndecodableRecord(f"the references of schemas to {subject} have no end")
            needed = self._version(subject, version, serialized)
            self._collect(needed, serialized, found, (*above, place))
            found[place] = (name, needed)

    def _version(self, subject: str, version: int, serialized: bool) -> Schema:
        place = (subject, version, serialized)
        kept = self._schemas.get(place)
        if kept is not None:
            return kept
        what = f"version {version} of subject {subject}"
        # A subject that was deleted is still referred to.
        target = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        found = self._schema(self._get(f"{target}&format=serialized" if serialized else target, what), what)
        if serialized:
            _check_serialized(found, what)
        return self._schemas.put(place, found)

    # --- HTTP -------------------------------------------------------------------------------------------------------

    def ask(self, target: str, *, method: str | None = None, document: Any = None) -> Any:
        """The JSON of an answer that is not kept, to a GET or to a POST of a document, unless a method is given.

        :class:`RegistryRefused` with the registry's own words, :class:`RegistryError` if there is no answer.
        """
        body = None if document is None else json.dumps(document).encode()
        try:
            return self._loaded(self._patiently(target, method, body))
        except ProviderError as error:
            try:
                told = str(json.loads(error.body)["message"])
            except (ValueError, RecursionError, TypeError, KeyError):
                raise self._refused(error, target, "such address") from None
            raise RegistryRefused(" ".join(told.split()), error.status or 500) from None

    def _get(self, target: str, what: str) -> Any:
        """The JSON of an answer."""
        now = self._clock()
        missing = self._missing.get(target)
        if missing is not None:
            if now < missing[0]:
                raise UndecodableRecord(missing[1])
            self._missing.remove(target)
        if self._resting is not None and now < self._resting[0]:
            raise self._resting[1]
        self._resting = None
        try:
            body = self._patiently(target)
        except ProviderError as error:
            raise self._refused(error, target, what) from None
        return self._loaded(body)

    def _loaded(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise RegistryError(f"{self._settings.urls[0]} answers without JSON: is it a schema registry?") from None

    def _patiently(self, target: str, method: str | None = None, body: bytes | None = None) -> bytes:
        """The body of an answer, from whichever registry gives it first, within the patience."""
        until = self._clock() + self._patience
        pause = _FIRST_PAUSE
        while True:
            for index, url in enumerate(self._settings.urls, 1):
                try:
                    return ask(
                        url._replace(target=url.target + target),
                        context=self._settings.context,
                        limits=self._limits,
                        headers=self._headers if body is None else {**self._headers, "Content-Type": _JSON_MEDIA},
                        form=body,
                        method=method,
                    )
                except ProviderError as error:
                    if error.is_final:
                        raise
                    if index == len(self._settings.urls) and self._clock() + pause > until:
                        raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _refused(self, error: ProviderError, target: str, what: str) -> Exception:
        if error.status == 404 and _is_of_a_registry(error.body):
            text = f"the registry has no {what}"
            self._missing.put(target, (self._clock() + _MISSING_SECONDS, text))
            return UndecodableRecord(text)
        text = f"schema registry: {error}"
        if error.status in (401, 403):
            text += f" (who asks is said by {USER_INFO} or {TOKEN} in --command-config)"
        is_away = not error.is_final or error.status == 404
        self._resting = (self._clock() + _REST_SECONDS, RegistryAway(text) if is_away else RegistryError(text))
        return self._resting[1]

    @staticmethod
    def _schema(document: Any, what: str) -> Schema:
        try:
            references = tuple(
                Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in document.get("references") or ()
            )
            return Schema(str(document.get("schemaType") or AVRO), str(document["schema"]), references)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise UndecodableRecord(f"the registry's answer about {what} is none") from None


def _is_of_a_registry(body: bytes) -> bool:
    """Whether an answer is a registry's own, and not that of what stands before a registry that is away."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "error_code" in document


def _check_serialized(schema: Schema, what: str) -> None:
    """A registry that does not know ``format=serialized`` answers with the text."""
    try:
        b64decode(schema.text, validate=True)
    except (binascii.Error, ValueError):
        raise UndecodableRecord(
            f"the registry gives {what} as text alone: it does not know the parameter format=serialized"
        ) from None
