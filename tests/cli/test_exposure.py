"""Listeners beyond the loopback interface that ask too little: which of them are told of, and in what words."""

from __future__ import annotations

import pytest

from kbroker.cli.exposure import Exposure, warn_of_exposure
from kbroker.config import BrokerConfig

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


@pytest.mark.parametrize(
    ("protocol", "more", "beginning"),
    [
        ("PLAINTEXT", {}, EVERYTHING),
        ("SSL", {}, EVERYTHING),
        ("SSL", {"ssl_client_auth": "requested"}, EVERYTHING),
        ("SSL", {"listener_name_out_ssl_client_auth": "required"}, ""),
        ("SASL_SSL", {}, ""),
        ("SASL_PLAINTEXT", {}, "NO ENCRYPTION on OUT://0.0.0.0:9092: "),
        (
            "PLAINTEXT",
            AUTHORIZER,
            "NO AUTHENTICATION on OUT://0.0.0.0:9092: whoever reaches it over the network may do",
        ),
    ],
)
def test_what_is_open_is_said(
    protocol: str, more: dict[str, str], beginning: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = config(protocol, **more)
    lines = Exposure.of(node).lines()
    assert len(lines) == bool(beginning) and "".join(lines).startswith(beginning)
    warn_of_exposure(node)
    assert [record.getMessage() for record in caplog.records] == lines


def test_what_only_this_machine_reaches_is_nobody_s_business() -> None:
    assert Exposure.of(config("PLAINTEXT", "127.0.0.1")).lines() == []
