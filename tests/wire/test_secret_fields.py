"""No text shows secrets of requests and records: not a message's, not the protocol explorer's, not a dump's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.client.records_io.log_entries import read_entries
from kbroker.config.broker_config import redact
from kbroker.observe.explorer.redaction import redacted_request
from kbroker.raft_metadata.controller.scram import credential_record
from kbroker.raft_metadata.raft.snapshot import encode_snapshot
from kbroker.raft_metadata.storage import bootstrap_records
from kbroker.security.sasl.add_scram import parse_add_scram
from kbroker.wire.compiler import encode
from kbroker.wire.headers import encode_request_header
from kbroker.wire.layout_text import render_frame
from kbroker.wire.messages.configs import AlterableConfig as OldAlterableConfig
from kbroker.wire.messages.configs import (
    AlterConfigsRequest,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.configs import AlterConfigsResource as OldAlterConfigsResource
from kbroker.wire.messages.sasl import SaslAuthenticateRequest
from kbroker.wire.messages.scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kbroker.wire.records.metadata import ConfigRecord
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import SECRET_FIELDS, is_hidden, struct_spec

SECRET = b"hunter2 hunter2 hunter2"


def test_requests_hide_them() -> None:
    upsertion = ScramCredentialUpsertion(name="alice", salted_password=SECRET)
    config = IncrementalAlterableConfig(
        name="listener.name.a.ssl.Key.Password", config_operation=0, value=SECRET.decode()
    )
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    for request in (
        IncrementalAlterConfigsRequest(resources=[resource]),
        SaslAuthenticateRequest(auth_bytes=SECRET),
        AlterUserScramCredentialsRequest(upsertions=[upsertion]),
    ):
        assert "hunter2" not in repr(request) and "=[hidden]" in repr(request)
        version = struct_spec(type(request)).versions.highest
        frame = encode_request_header(request.api_key, version, 1, "me") + encode(request, version)
        text = render_frame(len(frame).to_bytes(4, "big") + frame)
        assert "hunter2" not in text and SECRET[:8].hex(" ") not in text and "= [hidden]" in text


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("ssl.key.password", True),
        ("listener.name.a.plain.sasl.jaas.config", True),
        ("ssl.keystore.certificate.chain", True),
        ("my.passphrase", True),
        ("basic.auth.user.info", True),
        ("some.token", True),
        ("kbroker.some.token", True),
        ("nobody.knows.it", True),
        ("SSL.CLIENT.AUTH", True),
        ("", True),
        ("retention.ms", False),
        ("log.retention.ms", False),
        ("listener.name.a.ssl.client.auth", False),
        ("delegation.token.max.lifetime.ms", False),
        ("consumer.session.timeout.ms", False),
        ("interval.ms", False),
        ("kbroker.node.serving.connection", False),
        ("root", False),
    ],
)
def test_values_of_properties_are_shown_if_they_are_known_to_be_none(name: str, is_secret: bool) -> None:
    assert is_hidden("value", name) is is_secret
    assert (
        "hunter2" in repr(IncrementalAlterableConfig(name=name, config_operation=0, value="hunter2"))
    ) is not is_secret
    request = AlterConfigsRequest(
        resources=[OldAlterConfigsResource(resource_type=4, configs=[OldAlterableConfig(name=name, value="hunter2")])]
    )
    frame = encode_request_header(33, 2, 1, "me") + encode(request, 2)
    assert (b"hunter2" in redacted_request(frame)) is not is_secret


@pytest.mark.parametrize("name", ["my.passphrase", "basic.auth.user.info", "x.certificate.chain", "a.token", "a.jaas"])
def test_a_node_hides_its_own_unknown_properties_by_the_same_words(name: str) -> None:
    assert redact(name, "hunter2") == "[hidden]" and redact("nobody.knows.it", "hunter2") == "hunter2"


def test_dumps_hide_them(tmp_path: Path) -> None:
    user = parse_add_scram("SCRAM-SHA-256=[name=alice,password=hunter2]")
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000010-0000000001.checkpoint"
    path.parent.mkdir()
    config = ConfigRecord(resource_type=4, resource_name="1", name="ssl.key.password", value="hunter2")
    records = [*bootstrap_records(), credential_record(*user), config]
    path.write_bytes(encode_snapshot(records, now_ms=0, last_contained_log_timestamp=0))
    text = repr(list(read_entries(path)))
    assert "alice" in text and text.count("'[hidden]'") == 3 and "hunter2" not in text
    assert user.credential.stored_key.hex() not in text


def test_the_names_are_those_of_fields() -> None:
    names = set()
    for api in API_KEYS.values():
        pending = [api.request, api.response]
        while pending:
            for field in struct_spec(pending.pop()).fields:
                names.add(field.name)
                inner = field.type if field.type.element is None else field.type.element
                if inner.struct is not None:
                    pending.append(inner.struct)
    assert SECRET_FIELDS - names == {"server_key", "stored_key"}, "the others are fields of requests and responses"
