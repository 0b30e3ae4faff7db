"""Listeners beyond the loopback interface that ask too little: which of them are told of, and in what words."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.security.sasl import UNSECURED_VALIDATOR
from kbroker.tools.cli.config_warnings import of_no_listener, warn_about
from kbroker.tools.cli.exposure import Exposure, warn_of_exposure

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def config(protocol: str, host: str = "0.0.0.0", **more: str) -> BrokerConfig:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"OUT://{host}:9092,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": "OUT://kafka1:9092",
        "listener.security.protocol.map": f"OUT:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OUT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    }
    return BrokerConfig.from_properties(properties | {name.replace("_", "."): value for name, value in more.items()})


EVERYTHING = "NO AUTHENTICATION on OUT://0.0.0.0:9092: whoever reaches it over the network can read, change and delete"
ANONYMOUS = (
    "NO AUTHENTICATION on OUT://0.0.0.0:9092: whoever reaches it over the network may do what User:ANONYMOUS may"
)
PASSWORDS = "NO ENCRYPTION on OUT://0.0.0.0:9092: whoever can see the network's traffic reads passwords"
GUESSES = "NO ENCRYPTION on OUT://0.0.0.0:9092: whoever can see the network's traffic reads records, and can try"
UNRULED = "NO AUTHORIZER for OUT://0.0.0.0:9092: whoever logs in can"
GENEROUS = "allow.everyone.if.no.acl.found is true: whoever reaches OUT://0.0.0.0:9092 may"
GENEROUSLY = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}

UNSECURED = {
    "sasl_enabled_mechanisms": "OAUTHBEARER",
    "listener_name_out_oauthbearer_sasl_server_callback_handler_class": UNSECURED_VALIDATOR,
}


@pytest.mark.parametrize(
    ("protocol", "more", "beginnings"),
    [
        ("PLAINTEXT", {}, [EVERYTHING]),
        ("PLAINTEXT", AUTHORIZER, [ANONYMOUS]),
        ("PLAINTEXT", GENEROUSLY, [ANONYMOUS, GENEROUS]),
        ("SSL", {}, [EVERYTHING]),
        ("SSL", {"ssl_client_auth": "requested"}, [EVERYTHING]),
        ("SSL", {"listener_name_out_ssl_client_auth": "required"}, [UNRULED]),
        ("SSL", {"listener_name_out_ssl_client_auth": "required", **AUTHORIZER}, []),
        ("SASL_SSL", {}, [UNRULED]),
        ("SASL_SSL", AUTHORIZER, []),
        ("SASL_SSL", UNSECURED, [EVERYTHING]),
        ("SASL_PLAINTEXT", {**UNSECURED, **AUTHORIZER}, [ANONYMOUS]),
        ("SASL_SSL", GENEROUSLY, [GENEROUS]),
        ("SASL_PLAINTEXT", {"sasl_enabled_mechanisms": "SCRAM-SHA-512,PLAIN"}, [PASSWORDS, UNRULED]),
        ("SASL_PLAINTEXT", {"sasl_enabled_mechanisms": "SCRAM-SHA-512", **AUTHORIZER}, [GUESSES]),
        (
            "SASL_PLAINTEXT",
            {
                "sasl_enabled_mechanisms": "SCRAM-SHA-512",
                "listener_name_out_sasl_enabled_mechanisms": "PLAIN",
                **AUTHORIZER,
            },
            [PASSWORDS],
        ),
    ],
)
def test_what_is_open_is_said(
    protocol: str, more: dict[str, str], beginnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    node = config(protocol, **more)
    lines = Exposure.of(node).lines()
    assert len(lines) == len(beginnings)
    assert all(line.startswith(beginning) for line, beginning in zip(lines, beginnings, strict=True)), lines
    warn_of_exposure(node)
    assert [record.getMessage() for record in caplog.records] == lines


def test_what_only_this_machine_reaches_is_nobody_s_business() -> None:
    assert Exposure.of(config("PLAINTEXT", "127.0.0.1")).lines() == []
    assert Exposure.of(config("SASL_PLAINTEXT", "localhost", sasl_enabled_mechanisms="PLAIN")).lines() == []


TLS = {"ssl_keystore_location": "/k", "ssl_truststore_location": "/t"}
SASL = {"sasl_enabled_mechanisms": "PLAIN", "listener_name_out_plain_sasl_jaas_config": "x"}


@pytest.mark.parametrize(
    ("protocol", "more", "unused"),
    [
        ("PLAINTEXT", {}, []),
        ("PLAINTEXT", TLS, ["ssl.keystore.location", "ssl.truststore.location"]),
        ("PLAINTEXT", SASL, ["listener.name.out.plain.sasl.jaas.config", "sasl.enabled.mechanisms"]),
        ("SASL_PLAINTEXT", {**TLS, **SASL}, ["ssl.keystore.location", "ssl.truststore.location"]),
        ("SSL", {**TLS, "sasl_mechanism_inter_broker_protocol": "PLAIN"}, ["sasl.mechanism.inter.broker.protocol"]),
        ("SASL_SSL", {**TLS, **SASL}, []),
        (
            "SASL_SSL",
            {**TLS, **SASL, "listener_name_out_scram-sha-512_sasl_jaas_config": "x"},
            ["listener.name.out.scram-sha-512.sasl.jaas.config"],
        ),
        (
            "SASL_SSL",
            {**TLS, "sasl_enabled_mechanisms": "SCRAM-SHA-512", "sasl_mechanism_inter_broker_protocol": "PLAIN"}
            | {f"listener_name_out_{name}_sasl_jaas_config": "x" for name in ("plain", "scram-sha-512")},
            [],
        ),
        ("SSL", {"listener_name_in_ssl_keystore_location": "/k"}, ["listener.name.in.ssl.keystore.location"]),
        ("SSL", {"listener_name_controller_ssl_client_auth": "required"}, ["listener.name.controller.ssl.client.auth"]),
    ],
)
def test_properties_of_no_listener_are_named(
    protocol: str, more: dict[str, str], unused: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    node = config(protocol, "127.0.0.1", **more)
    assert of_no_listener(node) == unused
    warn_about(node)
    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if "they have no effect" in line] == (
        [f"no listener has the TLS or SASL that these are about; they have no effect: {', '.join(unused)}"]
        if unused
        else []
    )
    assert "/k" not in "".join(told)


def test_a_broker_takes_what_is_for_the_controllers_listener() -> None:
    broker = {
        "process.roles": "broker",
        "node.id": "2",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "ssl.truststore.location": "/t",
        "listener.name.controller.ssl.truststore.location": "/t",
    }
    assert of_no_listener(BrokerConfig.from_properties(broker)) == []
