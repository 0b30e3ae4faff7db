"""Both directions against kio, an independent implementation of the same protocol."""

from __future__ import annotations

import io
from pkgutil import resolve_name
from typing import Any

import pytest

from kbroker.wire.compiler import decode, encode
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import TypeSpec, struct_spec
from tests.wire.wire_support import INTEGERS, RandomMessages, message_classes, same

pytest.importorskip("kio")

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from tests.with_each import with_each

ERROR_CODES = sorted(int(code) for code in ErrorCode)

THEIRS = {
    (path.rpartition(":")[2], version): path
    for versions in schema_name_map.values()
    for version, entities in versions.items()
    for path in entities.values()
}
"""kio's classes by name and version."""

SHARED = [cls for cls in message_classes() if any(name == cls.__name__ for name, _ in THEIRS)]


class KioMessages(RandomMessages):
    """kio turns error codes into an enum, and times into dates: only values that those can hold."""

    with_own = False

    def value(self, name: str, type_spec: TypeSpec, version: int) -> Any:
        if type_spec.name in INTEGERS:
            if name.endswith("error_code"):
                return self.rng.choice(ERROR_CODES)
            if type_spec.name == "Int64" and ("time" in name or name.endswith("_ms")):
                return self.rng.choice((0, 1, self.rng.randrange(1 << 40)))
        return super().value(name, type_spec, version)


OF_4_4 = {
    "ApiVersions": 5,
    "DeleteGroups": 3,
    "StreamsGroupDescribe": 1,
    "StreamsGroupHeartbeat": 1,
    "StreamsGroupTopologyDescriptionUpdate": 0,
    "TxnOffsetCommit": 6,
    "UnregisterController": 0,
}
"""APIs of which kio, made of the definitions of 4.3, lacks versions: the first of them."""


def test_kio_has_every_version_of_every_api_of_4_3() -> None:
    for api in API_KEYS.values():
        lowest, highest = api.valid_versions
        end = OF_4_4.get(api.name, highest + 1)
        for cls in (api.request, api.response):
            assert all((cls.__name__, version) in THEIRS for version in range(lowest, end)), cls
            assert not any((cls.__name__, version) in THEIRS for version in range(end, highest + 1)), cls


@with_each(SHARED)
def test_both_directions(cls: type[Any]) -> None:
    lowest, highest = struct_spec(cls).versions
    for version in range(lowest, highest + 1):
        path = THEIRS.get((cls.__name__, version))
        if path is None:
            continue
        theirs = resolve_name(path)
        read, write = entity_reader(theirs), entity_writer(theirs)
        for seed in range(3):
            message = KioMessages(seed).message(cls, version)
            ours = encode(message, version)
            entity, size = read(ours, 0)
            assert size == len(ours), (version, seed)
            buffer = io.BytesIO()
            write(buffer, entity)
            assert buffer.getvalue() == ours, (version, seed)
            decoded, end = decode(cls, version, buffer.getvalue())
            assert end == len(ours)
            assert same(decoded, message), (version, seed)
