"""Changes of a running node's properties that Apache Kafka 4.3.1 takes or refuses, with its sentences."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig, InvalidConfig
from kbroker.config.reconfiguration import check_listeners, overridden, validate_reconfiguration

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
WRAPPED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
THREADS = "Dynamic thread count update validation failed for {}"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"log.cleaner.threads": "3"},
            WRAPPED.format("Log cleaner threads cannot be increased to more than double the current value 1"),
        ),
        (
            {"num.io.threads": "3"},
            WRAPPED.format(THREADS.format("num.io.threads=3, value should be at least half the current value 8")),
        ),
        (
            {"num.network.threads": "7"},
            WRAPPED.format(
                THREADS.format("num.network.threads=7, value should not be greater than double the current value 3")
            ),
        ),
        (
            {"log.retention.ms": "0"},
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.roll.ms": "0"}, "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            {"log.cleaner.dedupe.buffer.size": "1000000"},
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"max.connections.per.ip": "0"},
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set.",
        ),
        (
            {"log.local.retention.ms": "604800001"},
            WRAPPED.format(
                "Invalid value 604800001 for configuration log.local.retention.ms: "
                "Value must not be more than log.retention.ms property value: 604800000"
            ),
        ),
        (
            {"log.retention.bytes": "100", "log.local.retention.bytes": "-1"},
            WRAPPED.format(
                "Invalid value -1 for configuration log.local.retention.bytes: "
                "Value must not be -1 as log.retention.bytes value is set as 100."
            ),
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1"},
            "requirement failed: controller.listener.names must only contain values appearing in the 'listeners' "
            "configuration when running the KRaft controller role",
        ),
    ],
)
def test_refused(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        validate_reconfiguration(NODE, overridden(NODE, [changes]))
    assert caught.value.message == problem


def test_listeners_that_are_advertised_stay_as_they_are() -> None:
    """Others are opened and closed while a node runs: tests/node/test_dynamic_listeners.py."""
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MORE:PLAINTEXT"
    before = BrokerConfig.from_properties(NODE | {"listener.security.protocol.map": protocols})
    more = f"{NODE['listeners']},MORE://:1"
    check_listeners(before, before, before.with_properties({"listeners": more}))
    other = before.with_properties({"listeners": "MORE://:1,CONTROLLER://:2", "inter.broker.listener.name": "MORE"})
    with pytest.raises(InvalidConfig, match="must be a subset of listeners"):
        check_listeners(before, before, other)
    safer = protocols.replace("PLAINTEXT:PLAINTEXT", "PLAINTEXT:SASL_PLAINTEXT")
    with pytest.raises(InvalidConfig, match=r"cannot be updated for existing listener ListenerName\(PLAINTEXT\)"):
        check_listeners(before, before, before.with_properties({"listener.security.protocol.map": safer}))


def test_taken() -> None:
    changes = {
        "log.cleaner.threads": "2",
        "num.io.threads": "16",
        "num.network.threads": "2",
        "log.retention.ms": "-1",
        "log.local.retention.ms": "-2",
        "message.max.bytes": "1000",
    }
    validate_reconfiguration(NODE, overridden(NODE, [changes]))
    validate_reconfiguration(overridden(NODE, [changes]), NODE)


def test_a_state_that_would_be_refused_can_be_left() -> None:
    validate_reconfiguration(NODE | {"log.retention.ms": "0"}, NODE)


def test_what_is_set_at_run_time_wins_over_its_synonyms() -> None:
    static = {"log.retention.ms": "5", "log.retention.minutes": "7", "log.roll.ms": "9"}
    assert overridden(static, [{"log.retention.hours": "1"}]) == {"log.retention.hours": "1", "log.roll.ms": "9"}
    assert overridden(static, [{"log.roll.hours": "1"}, {"log.roll.ms": "2"}])["log.roll.ms"] == "2"
