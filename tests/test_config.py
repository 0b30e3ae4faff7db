"""kbroker's tables of properties against Apache Kafka 4.4.0's facts (made by tests/facts/ConfigFacts.java)."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIG_SYNONYMS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigDef,
    ConfigType,
    InvalidConfig,
    Password,
    validate_topic_config,
    validate_topic_configs,
)
from kbroker.config.absent import (
    ABSENT_BROKER_CONFIGS,
    ABSENT_GROUP_CONFIGS,
    ALL_BROKER_CONFIGS,
    ALL_GROUP_CONFIGS,
    REFUSED,
)
from kbroker.config.broker import OWN_CONFIGS
from kbroker.config.client_metrics import CLIENT_METRICS_CONFIGS
from kbroker.config.config_key import REQUIRED, ConfigKey, Importance
from kbroker.config.run_time_only import DYNAMIC_BROKER_CONFIGS, broker_config_key
from kbroker.config.table import CLUSTER_WIDE, HIGH, INT, LIST, LOW, STRING, Table, derived
from kbroker.errors import FatalError

FACTS = json.loads((Path(__file__).parent / "facts" / "kafka_configs.json").read_text())
SCOPES: dict[str, ConfigDef] = {
    "broker": ALL_BROKER_CONFIGS,
    "topic": TOPIC_CONFIGS,
    "group": ALL_GROUP_CONFIGS,
    "client metrics": CLIENT_METRICS_CONFIGS,
}
BY_NAME = {(row[0], row[1]): row for row in FACTS["configs"]}


@pytest.mark.parametrize("scope", SCOPES)
def test_every_property_is_what_it_is_in_kafka(scope: str) -> None:
    for name, key in SCOPES[scope].items():
        _, _, kind, default, importance, valid, internal, mode = BY_NAME[scope, name]
        assert key.type.name == kind, name
        assert ("<required>" if key.default == REQUIRED else key.default) == default, name
        assert key.importance.value == importance, name
        assert key.internal == internal, name
        if scope == "broker":
            assert key.update_mode.value == mode, name
        if name not in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):  # parsed entry by entry
            assert (str(key.validator or "") or None) == valid, name


@pytest.mark.parametrize("scope", SCOPES)
def test_every_property_of_kafka_exists(scope: str) -> None:
    assert set(SCOPES[scope]) == {row[1] for row in FACTS["configs"] if row[0] == scope}


def test_what_kbroker_does_not_have_says_so() -> None:
    for key in (*ABSENT_BROKER_CONFIGS.values(), *ABSENT_GROUP_CONFIGS.values()):
        assert key.no_effect and key.name not in BROKER_CONFIGS and key.name not in GROUP_CONFIGS, key.name
    assert set(REFUSED) <= set(ABSENT_BROKER_CONFIGS)


def test_topic_synonyms_are_kafkas() -> None:
    assert {name: [list(pair) for pair in pairs] for name, pairs in TOPIC_CONFIG_SYNONYMS.items()} == FACTS[
        "topic_synonyms"
    ]


@pytest.mark.parametrize("scope", SCOPES)
def test_defaults_can_be_parsed_validated_and_written_back(scope: str) -> None:
    for key in SCOPES[scope].values():
        if key.has_default and key.default is not None:
            text = key.format(key.parse(key.default) if key.default or not key.validator else key.default_value())
            assert text == key.default, key.name


def test_the_throttles_of_replication_exist_at_run_time_only() -> None:
    """They are those of ``QuotaConfig.brokerQuotaConfigs``, which the table of facts leaves out."""
    assert list(DYNAMIC_BROKER_CONFIGS) == [
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ]
    for name, found in DYNAMIC_BROKER_CONFIGS.items():
        assert name not in BROKER_CONFIGS and broker_config_key(name) is found
        assert found.parse(found.default) == 2**63 - 1
        with pytest.raises(InvalidConfig, match=f"Invalid value -1 for configuration {name}: Value must be at least 0"):
            found.parse("-1")


def test_own_properties_are_judged_and_are_none_of_kafkas() -> None:
    assert OWN_CONFIGS.keys().isdisjoint(ALL_BROKER_CONFIGS)
    node = {"process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER"}
    node |= {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.quorum.voters": "1@localhost:9093"}
    config = BrokerConfig.from_properties(node | {"log.scrub.bytes.per.second": "5"})
    assert (config.log_scrub_bytes_per_second, config.unknown) == (5, ())
    assert BrokerConfig.from_properties(node).log_scrub_bytes_per_second == 10 * 1024 * 1024
    with pytest.raises(FatalError, match=r"log\.scrub\.bytes\.per\.second"):
        BrokerConfig.from_properties(node | {"log.scrub.bytes.per.second": "-1"})


def test_every_property_is_described() -> None:
    for definition in (*SCOPES.values(), DYNAMIC_BROKER_CONFIGS, OWN_CONFIGS):
        for key in definition.values():
            assert key.doc.endswith("."), key.name


class Rows(Table, no_effect="it is for a test"):
    """A table."""

    row_of_one_line = INT("1", LOW)
    """Number of
    lines."""
    row_without_text = STRING(None, HIGH, no_effect="nobody knows it")
    own_type: frozenset[str] = derived(LIST("a,b", LOW, mode=CLUSTER_WIDE))
    """Letters."""


def test_a_row_is_a_property_with_the_text_below_it() -> None:
    assert [(each.name, each.type.name, each.default, each.doc, each.no_effect) for each in Rows.KEYS] == [
        ("row.of.one.line", "INT", "1", "Number of lines.", "it is for a test"),
        ("row.without.text", "STRING", None, "", "nobody knows it"),
        ("own.type", "LIST", "a,b", "Letters.", "it is for a test"),
    ]
    assert not hasattr(Rows, "own_type")  # the value is an instance's


def test_a_table_without_source_has_no_text() -> None:
    scope: dict[str, Any] = {"__name__": "no.such.module"}
    exec("from kbroker.config.table import *\nclass More(Table):\n    a_row = INT('1', LOW)\n    'Text.'", scope)
    assert [(each.name, each.doc) for each in scope["More"].KEYS] == [("a.row", "")]


def key(kind: ConfigType) -> ConfigKey:
    return ConfigKey("a.b", kind, None, Importance.LOW)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.INT, " 12 ", 12),
        (ConfigType.INT, "+3", 3),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, " false", False),
        (ConfigType.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (ConfigType.DOUBLE, ".5f", 0.5),
        (ConfigType.LIST, "a , b,c", ["a", "b", "c"]),
        (ConfigType.LIST, " ", []),
        (ConfigType.STRING, " x ", "x"),
    ],
)
def test_values_are_read_as_java_reads_them(kind: ConfigType, text: str, value: object) -> None:
    assert key(kind).parse(text) == value


def test_an_entry_of_a_list_counts_once() -> None:
    assert TOPIC_CONFIGS.parse("cleanup.policy", "delete, compact,delete") == ["delete", "compact"]
    assert key(ConfigType.LIST).parse("a,b,a") == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "1k"),
        (ConfigType.INT, "١"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "9" * 100_000),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "1.0"),
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_bad_values_are_named(kind: ConfigType, text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"a\.b"):
        key(kind).parse(text)


def test_doubles_are_written_as_java_writes_them() -> None:
    double = key(ConfigType.DOUBLE)
    assert double.format(0.5) == "0.5"
    assert double.format(1.7976931348623157e308) == "1.7976931348623157E308"
    assert double.format(math.inf) == "Infinity"
    assert double.format(1e-7) == "1.0E-7"


def test_passwords_hide_themselves() -> None:
    secret = key(ConfigType.PASSWORD).parse("hunter2")
    assert isinstance(secret, Password)
    assert "hunter2" not in f"{secret} {secret!r} {secret}" + str([secret])
    assert secret.value == "hunter2"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        (
            "cleanup.policy",
            "delete,shred",
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "leader.replication.throttled.replicas",
            "1-2, x",
            "Invalid value [1-2, x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        ("no.such.thing", "1", "Unknown topic config name: no.such.thing"),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
    ],
)
def test_topic_properties_are_judged(name: str, value: str | None, problem: str) -> None:
    """The sentences are Kafka's: its tools show them to people."""
    with pytest.raises(InvalidConfig) as caught:
        validate_topic_config(name, value)
    assert caught.value.message == problem


def test_topic_properties_that_are_fine() -> None:
    assert validate_topic_config("cleanup.policy", "compact, delete") == ["compact", "delete"]
    assert validate_topic_config("cleanup.policy", "") == []
    assert validate_topic_config("compression.gzip.level", "-1") == -1
    assert validate_topic_config("leader.replication.throttled.replicas", "0:1,1:2") == ["0:1", "1:2"]


def test_a_topic_cannot_be_tiered() -> None:
    with pytest.raises(InvalidConfig, match="Tiered Storage functionality is disabled"):
        validate_topic_configs({"remote.storage.enable": "true"})


def test_topic_properties_that_contradict_each_other() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        validate_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
