"""Header versions, the traps among them, and registry look-ups."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kbroker.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from kbroker.wire.registry import API_KEYS, api_named, request_header_version, response_header_version


def test_header_versions() -> None:
    assert [request_header_version(12, version) for version in range(5)] == [1, 1, 1, 1, 2]
    assert [response_header_version(12, version) for version in range(5)] == [0, 0, 0, 0, 1]
    # The reader of an ApiVersions response does not know yet what the broker speaks.
    assert [response_header_version(18, version) for version in range(5)] == [0] * 5
    assert [request_header_version(18, version) for version in range(5)] == [1, 1, 1, 2, 2]
    # SaslHandshake and OffsetDelete were never made flexible.
    assert [request_header_version(17, version) for version in range(2)] == [1, 1]
    assert request_header_version(47, 0) == 1
    with pytest.raises(KeyError):
        request_header_version(7, 0)


def test_the_registry() -> None:
    assert {4, 5, 6, 7}.isdisjoint(API_KEYS)
    assert len(API_KEYS) == 91
    produce = api_named("Produce")
    assert (produce.key, produce.valid_versions, produce.flexible_from) == (0, (3, 13), 9)
    assert produce.request.__name__ == "ProduceRequest"
    assert produce.response.__name__ == "ProduceResponse"
    assert api_named("InitProducerId").valid_versions == (0, 6)
    assert api_named("InitProducerId").stable_versions == (0, 5)
    with pytest.raises(KeyError):
        api_named("ControlledShutdown")


def test_both_directions() -> None:
    for client_id in (None, "", "rdkafka", "ключ"):
        for version in (0, 4):
            encoded = encode_request_header(12, version, 7, client_id)
            assert decode_request_header(encoded + b"body") == (RequestHeader(12, version, 7, client_id), len(encoded))
    for key, version, size in ((12, 0, 4), (12, 4, 5), (18, 4, 4)):
        encoded = encode_response_header(key, version, -5)
        assert len(encoded) == size
        assert decode_response_header(key, version, encoded + b"body") == (-5, size)


def test_any_version_of_api_versions_can_be_read() -> None:
    for version, tags in ((-1, b""), (32767, b"\0")):
        header = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1" + b"\0\1c" + tags
        assert decode_request_header(header) == (RequestHeader(18, version, 1, "c"), len(header))


def test_a_client_id_that_is_not_utf8() -> None:
    header, offset = decode_request_header(b"\0\x0c\0\0" + b"\0\0\0\1" + b"\0\2\xff\xfe")
    assert header.client_id == "\ufffd\ufffd"
    assert offset == 12


def test_tags_of_a_request_header_are_skipped() -> None:
    encoded = encode_request_header(12, 4, 7, "c")[:-1] + b"\1\x09\3abc"
    assert decode_request_header(encoded)[1] == len(encoded)


def test_start_up_imports_no_messages() -> None:
    code = (
        "import sys, kbroker.wire.framing;"
        "print([m for m in sys.modules if m.startswith('kbroker.wire.messages.') or m == 'construct'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
