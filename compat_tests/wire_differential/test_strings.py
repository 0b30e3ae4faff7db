"""Strings that no client sends, in every field of every API: null where one must be, and bytes that are not UTF-8.

Apache Kafka ends the connection for a null, and reads bytes that are not UTF-8 as replacement characters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import Broker
from compat_tests.raw_socket import RawSocket
from compat_tests.wire_differential.judged import beside_apache_kafka
from kbroker.wire.framing import request_parts
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import MISSING, TypeSpec, is_own, struct_spec
from tests.patience import SHORT

TEXT = "xyz"
ANSWERED, CLOSED = "answered", "closed"
SILENT = frozenset({"AddPartitionsToTxn"})
"""APIs that Apache Kafka leaves unanswered where kbroker ends the connection, as the request has no transaction."""


def full(cls: type[Any], version: int) -> Any:
    """A request with one element in each list, and the same text in each string."""
    fields = [spec for spec in struct_spec(cls).fields if version in spec.versions and not is_own(spec)]
    return cls(**{spec.name: _value(spec.type, version, spec.default) for spec in fields if spec.tag is None})


def _value(kind: TypeSpec, version: int, default: Any) -> Any:
    if kind.element is not None:
        return [_value(kind.element, version, {"Bytes": b"", "UuidField": bytes(16)}.get(kind.element.name, 0))]
    if kind.struct is not None:
        return full(kind.struct, version)
    if kind.name == "Str":
        return TEXT
    return memoryview(b"") if kind.name == "Records" else {} if default is MISSING else default


def mistakes(frame: bytes, flexible: bool) -> Iterator[tuple[str, bytes]]:
    """The frame with one of its strings wrong, each in turn."""
    text = TEXT.encode()
    old = bytes([len(text) + 1]) + text if flexible else len(text).to_bytes(2, "big") + text
    at = frame.find(old)
    while at >= 0:
        rest = frame[at + len(old) :]
        yield f"a null at byte {at}", frame[:at] + (b"\0" if flexible else b"\xff\xff") + rest
        yield f"no UTF-8 at byte {at}", frame[:at] + old[:-1] + b"\xff" + rest
        at = frame.find(old, at + 1)


def told(bootstrap: str, frame: bytes) -> str:
    """Whether the broker answers."""
    socket = RawSocket(bootstrap, SHORT)
    try:
        socket.send(len(frame).to_bytes(4, "big") + frame)
        socket.receive()
    except TimeoutError:
        raise
    except OSError:
        return CLOSED
    finally:
        socket.close()
    return ANSWERED


@pytest.fixture(scope="module")
def addresses(broker: Broker) -> Iterator[tuple[str, str]]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(beside_apache_kafka(broker))


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "strings that are null or no UTF-8")
@pytest.mark.parametrize("is_newest", [True, False])
def test_wrong_strings(addresses: tuple[str, str], is_newest: bool) -> None:
    count, found = 0, []
    for key, (lowest, highest) in served_apis(addresses[0]).items():
        api = API_KEYS[key]
        if api.name in SILENT:
            continue
        version = highest if is_newest else max(lowest, api.valid_versions.lowest)
        flexible = version in struct_spec(api.request).flexible
        parts = request_parts(key, version, 1, "c", full(api.request, version))
        for what, frame in mistakes(b"".join(parts)[4:], flexible):
            count += 1
            ours, theirs = (told(address, frame) for address in addresses)
            if ours != theirs:
                found.append(f"{api.name} v{version}, {what}: kbroker {ours}, Apache Kafka {theirs}")
    assert count > 100 and not found, "\n".join(found)
