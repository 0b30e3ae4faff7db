"""No secret of any API leaves a node, in fields or in bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.observe.explorer.redaction import LARGEST, may_have_secrets, redacted_request, redacted_response
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.configs import AlterConfigsRequest
from kbroker.wire.messages.delegation_tokens import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kbroker.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import SECRET_FIELDS, struct_spec
from tests.explorer.exchanges import request_frame, response_frame

SECRET = "hunter2-hunter2"


def _filled(cls: type[Any], version: int) -> Any:
    """A message of which every text and every list has something in it, and each secret the secret."""
    message = cls()
    names = {field.name for field in struct_spec(cls).fields}
    for field in struct_spec(cls).fields:
        if version not in field.versions:
            continue
        element = field.type.element
        if element is not None:
            if element.struct is not None:
                setattr(message, field.name, [_filled(element.struct, version)])
        elif field.type.struct is not None:
            setattr(message, field.name, _filled(field.type.struct, version))
        elif field.name in SECRET_FIELDS:
            setattr(message, field.name, SECRET.encode())
        elif field.name == "name" and "value" in names and field.type.name == "Str":
            message.name = "ssl.keystore.password"
        elif field.name == "value" and "name" in names and field.type.name == "Str":
            message.value = SECRET
    return message


SECRETIVE = [key for key in API_KEYS if may_have_secrets(key) and key != 58]


def test_the_apis_with_secrets_are_found() -> None:
    names = {API_KEYS[key].name for key in SECRETIVE}
    assert {
        "SaslAuthenticate",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "AlterUserScramCredentials",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "DescribeConfigs",
        "CreateTopics",
    } <= names
    assert not may_have_secrets(0) and not may_have_secrets(1) and may_have_secrets(58) and may_have_secrets(999)


@pytest.mark.parametrize("key", SECRETIVE)
def test_every_secret_of_every_api_is_overwritten(key: int) -> None:
    api = API_KEYS[key]
    for version in range(api.valid_versions.lowest, api.valid_versions.highest + 1):
        request = request_frame(_filled(api.request, version), version)
        shown = redacted_request(request)
        assert SECRET.encode() not in shown and len(shown) == len(request)
        response = response_frame(_filled(api.response, version), version)
        shown = redacted_response(response, request)
        assert SECRET.encode() not in shown and len(shown) == len(response)


def test_what_is_no_secret_stays() -> None:
    request = request_frame(HeartbeatRequest(group_id="g", member_id="m"), 4)
    assert redacted_request(request) == request
    answer = response_frame(SaslAuthenticateResponse(error_message="no such user"), 2)
    assert redacted_response(answer, request_frame(SaslAuthenticateRequest(), 2)) == answer


def test_an_envelope_is_looked_into() -> None:
    inner = request_frame(_filled(AlterConfigsRequest, 2), 2)
    envelope = request_frame(EnvelopeRequest(request_data=inner, request_principal=b"p", client_host_address=b"h"), 0)
    shown = redacted_request(envelope)
    assert SECRET.encode() not in shown and b"ssl.keystore.password" in shown and len(shown) == len(envelope)
    inner = request_frame(CreateDelegationTokenRequest(), 3)
    envelope = request_frame(EnvelopeRequest(request_data=inner, request_principal=b"p", client_host_address=b"h"), 0)
    answer = response_frame(CreateDelegationTokenResponse(hmac=SECRET.encode(), token_id="the-token"), 3)
    wrapped = response_frame(EnvelopeResponse(response_data=answer), 0)
    shown = redacted_response(wrapped, envelope)
    assert SECRET.encode() not in shown and b"the-token" in shown


@given(st.sampled_from(SECRETIVE), st.integers(0, 5), st.binary(max_size=60), st.binary(max_size=60))
def test_nonsense_is_no_mistake(key: int, version: int, body: bytes, answer: bytes) -> None:
    request = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + body
    assert len(redacted_request(request)) == len(request)
    assert len(redacted_response(answer, request)) == len(answer)


def test_what_cannot_be_read_is_overwritten_but_for_its_beginning() -> None:
    request = request_frame(SaslAuthenticateRequest(auth_bytes=SECRET.encode()), 2)
    cases = [
        request[:-1],  # cut short
        request + SECRET.encode(),  # bytes after it
        request[:2] + (99).to_bytes(2, "big") + request[4:],  # a version that there is not
        (999).to_bytes(2, "big") + request[2:],  # an API that there is not
        request[:-1] + b"\1\x37" + bytes([len(SECRET)]) + SECRET.encode(),  # an unknown tagged field
        request + bytes(LARGEST),
    ]
    for frame in cases:
        shown = redacted_request(frame)
        assert SECRET.encode() not in shown and len(shown) == len(frame)
        assert shown[:8] == (bytes(8) if frame[0] else frame[:8])  # of an API that there is not nothing is told
    answer = response_frame(SaslAuthenticateResponse(auth_bytes=SECRET.encode()), 2)
    assert SECRET.encode() not in redacted_response(answer[:-1], request)
    assert SECRET.encode() not in redacted_response(answer + bytes(LARGEST), request)
