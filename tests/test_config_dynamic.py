"""Each property that Apache Kafka 4.4.0 changes while a broker runs (KIP-226) is taken here, with effect or a word.

What changes is looked at where the parts of a node look for it each time; the node warns of what changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.config import BROKER_CONFIGS, BrokerConfig
from kbroker.config.config_key import UpdateMode
from kbroker.config.not_at_run_time import why_refused, why_without_effect
from kbroker.config.run_time_only import DYNAMIC_BROKER_CONFIGS, broker_config_key
from kbroker.config.security import SECURITY_CONFIGS
from kbroker.config.security.tls import STORES as TLS_STORES
from kbroker.config.topic_values import TOPIC_CONFIG_SYNONYMS
from kbroker.cores.transactions.settings import TransactionSettings
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
from kbroker.node.listeners import Listeners
from kbroker.node.logs.log_cleaner import CleanerSettings
from kbroker.raft_metadata.config_entries import broker_entries
from kbroker.raft_metadata.config_schema import ConfigSchema, broker_value, group_config
from kbroker.raft_metadata.controller.configs import validate_broker_config
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, ResourceType
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records.metadata import ConfigRecord
from tests.handlers.metadata_plane import properties
from tests.with_each import with_each

FACTS = json.loads((Path(__file__).parent / "facts" / "kafka_configs.json").read_text("utf-8"))["configs"]
MODES = {row[1]: row[7] for row in FACTS if row[0] == "broker" and row[7] != "read-only"}
"""Name -> update mode of every property of a broker that Apache Kafka 4.4.0 names dynamic."""

CONFIG = BrokerConfig.from_properties(properties(Path("data")))
SCHEMA = ConfigSchema(CONFIG)


class Seen(NamedTuple):
    """A node that has followed the metadata."""

    delta: MetadataDelta
    image: MetadataImage
    dynamic: DynamicBrokerConfig


def log(node: Seen) -> object:
    return node.dynamic.log_config({})


def topics(node: Seen) -> object:
    """Where the controller looks."""
    return [SCHEMA.topic_value(node.image.configs, "t", name) for name in ("unclean.leader.election.enable",)]


def cleaner(node: Seen) -> object:
    return CleanerSettings.of(node.dynamic.with_prefix("log.cleaner."))


def connections(node: Seen) -> object:
    listeners = Listeners(CONFIG, node.dynamic, None)  # type: ignore[arg-type]
    return listeners._limits(is_controller=False)


def rate(node: Seen) -> object:
    return node.dynamic.with_prefix("max.connection.creation.rate").max_connection_creation_rate


def groups(node: Seen) -> object:
    return group_config(node.image, CONFIG, "g")


def transactions(node: Seen) -> object:
    return TransactionSettings.from_config(node.dynamic.with_prefix("transaction."))


def producers(node: Seen) -> object:
    return node.dynamic.producer_id_expiration_ms


def letters(node: Seen) -> object:
    names = ("errors.deadletterqueue.auto.create.topics.enable", "errors.deadletterqueue.topic.name.prefix")
    return [broker_value(node.image.configs, CONFIG, name) for name in names]


def cordoned(node: Seen) -> object:
    return node.dynamic.with_prefix("cordoned.log.dirs").cordoned_log_dirs


def of_listeners(node: Seen) -> object:
    """Listeners make use of it in tests/node/test_dynamic_listeners.py and tests/node/test_tls_changes.py."""
    return node.dynamic.of_listeners().raw


LOOKS: Mapping[str, Callable[[Seen], object]] = {
    "cordoned.log.dirs": cordoned,
    "errors.deadletterqueue.auto.create.topics.enable": letters,
    "errors.deadletterqueue.topic.name.prefix": letters,
    "group.consumer.assignment.interval.ms": groups,
    "group.share.assignment.interval.ms": groups,
    "group.streams.assignment.interval.ms": groups,
    "log.cleaner.backoff.ms": cleaner,
    "log.cleaner.dedupe.buffer.size": cleaner,
    "log.cleaner.io.buffer.load.factor": cleaner,
    "log.cleaner.io.buffer.size": cleaner,
    "log.cleaner.io.max.bytes.per.second": cleaner,
    "log.cleaner.threads": cleaner,
    "max.connection.creation.rate": rate,
    "max.connections": connections,
    "max.connections.per.ip": connections,
    "max.connections.per.ip.overrides": connections,
    "producer.id.expiration.ms": producers,
    "transaction.partition.verification.enable": transactions,
    "unclean.leader.election.enable": topics,
} | {
    name: of_listeners
    for name in ("listeners", "listener.security.protocol.map", *SECURITY_CONFIGS)
    if name in MODES and name not in TLS_STORES and not why_without_effect(name)
}
"""Where the value of a property is looked up; that of all others that topics have, in the configuration of logs."""

OTHER_VALUES = {
    "cordoned.log.dirs": "*",
    "log.cleanup.policy": "compact",
    "log.cleaner.io.buffer.size": "1048576",
    "log.cleaner.threads": "2",
    "log.message.timestamp.type": "LogAppendTime",
    "log.cleaner.dedupe.buffer.size": "20000000",
    "max.connections.per.ip.overrides": "10.0.0.1:5",
    "errors.deadletterqueue.topic.name.prefix": "letters",
    "compression.type": "lz4",
    "compression.gzip.level": "5",
    "compression.lz4.level": "5",
    "compression.zstd.level": "5",
    "listeners": CONFIG.raw["listeners"].replace("127.0.0.1", "127.0.0.2"),
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MORE:PLAINTEXT",
    "metric.reporters": "",
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "ssl.client.auth": "requested",
}
THREADS = {name for name in MODES if "thread" in name or name == "num.replica.fetchers"}
CLASSES = {"ssl.engine.factory.class"}
"""Java classes, of which kbroker finds none."""
WRONG_PLACE = TLS_STORES
"""With a listener's prefix alone; what happens then is seen in tests/node/test_tls_changes.py."""


def other_value(name: str) -> str:
    key = broker_config_key(name)
    assert key is not None
    if name in OTHER_VALUES:
        return OTHER_VALUES[name]
    default = key.default_value()
    if name in THREADS:
        return str(default + 1)
    if isinstance(default, bool):
        return str(not default).lower()
    if isinstance(default, float):
        return "0.8"
    if isinstance(default, int):
        return str(default // 2 if default > 1 else 50_000)
    return "50000" if key.type.name in ("INT", "LONG", "SHORT") else "another"


def node_with(broker: str, changes: Mapping[str, str]) -> Seen:
    delta = MetadataDelta(EMPTY_IMAGE)
    for name, value in changes.items():
        delta.replay(ConfigRecord(resource_type=ResourceType.BROKER, resource_name=broker, name=name, value=value))
    image = delta.apply(OffsetAndEpoch(1, 1))
    dynamic = DynamicBrokerConfig(CONFIG)
    dynamic.on_image(delta, image)
    return Seen(delta, image, dynamic)


def described_as_fixed(name: str) -> bool:
    """Or not described at all, as what is internal in Kafka."""
    return all(each.read_only for each in broker_entries(SCHEMA, EMPTY_IMAGE.configs) if each.name == name)


def changeable() -> list[str]:
    of_topics = {synonym for synonyms in TOPIC_CONFIG_SYNONYMS.values() for synonym, _ in synonyms}
    keys = {name: BROKER_CONFIGS[name] for name in of_topics if name in BROKER_CONFIGS}
    return sorted(name for name in MODES if name in LOOKS or (name in keys and not keys[name].no_effect))


@with_each(changeable())
def test_a_change_is_taken_and_seen(name: str) -> None:
    broker_id = CONFIG.node_id if MODES[name] == UpdateMode.PER_BROKER else None
    changes = {name: other_value(name)}
    validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=broker_id)
    look = LOOKS.get(name, log)
    before = look(node_with("", {}))
    after = look(node_with("" if broker_id is None else str(broker_id), changes))
    assert before != after
    assert not described_as_fixed(name)


@with_each(sorted(MODES.keys() - set(changeable()) - WRONG_PLACE - CLASSES))
def test_the_node_warns_of_what_it_takes_without_effect(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert why_without_effect(name)
    validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, {name: other_value(name)}, broker_id=CONFIG.node_id)
    node = node_with(str(CONFIG.node_id), {name: other_value(name)})
    assert f"{name} is set at run time, without effect: {why_without_effect(name)}" in caplog.messages
    told = len(caplog.messages)
    node.dynamic.on_image(node.delta, node.image)
    assert len(caplog.messages) == told, "once"


def test_what_is_fixed_in_apache_kafka_is_fixed_here_and_nothing_else() -> None:
    """By DescribeConfigs; internal properties are described where they are set alone."""
    described = {each.name: each.read_only for each in broker_entries(SCHEMA, EMPTY_IMAGE.configs)}
    wanted = {row[1]: row[7] == "read-only" for row in FACTS if row[0] == "broker" and row[1] in described}
    assert described == wanted and len(wanted) == 350 and len(MODES.keys() - wanted.keys()) == 3


@pytest.mark.parametrize("name", sorted(WRONG_PLACE))
def test_stores_of_keys_change_for_one_listener(name: str) -> None:
    assert MODES[name] == UpdateMode.PER_BROKER
    with pytest.raises(ApiError, match="only per-listener using the listener prefix"):
        validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, {name: "x"}, broker_id=CONFIG.node_id)


def test_quotas_of_replication_exist_at_run_time_alone() -> None:
    """(``QuotaConfig.brokerQuotaConfigs``)"""
    changes = dict.fromkeys(DYNAMIC_BROKER_CONFIGS, "1000")
    validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=None)


def test_a_listener_has_properties_of_its_own_for_one_broker() -> None:
    """But for three, which Apache Kafka takes for all brokers at once."""
    one = ("ssl.client.auth", "none"), ("sasl.enabled.mechanisms", "PLAIN"), ("ssl.provider", "x")
    everywhere = ("max.connections", "5"), ("max.connection.creation.rate", "5"), ("num.network.threads", "5")
    for name, value in (*one, *everywhere):
        changes = {f"listener.name.clients.{name}": value}
        validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=CONFIG.node_id)
        if (name, value) in everywhere:
            validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=None)
        else:
            with pytest.raises(ApiError, match="at default cluster level"):
                validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=None)


def test_no_request_names_code_that_a_node_runs_or_files_and_hosts_that_it_asks() -> None:
    names = ("plain.sasl.server.callback.handler.class", "oauthbearer.sasl.oauthbearer.jwks.endpoint.url")
    for name in (f"listener.name.clients.{name}" for name in names):
        assert why_refused(name)
        with pytest.raises(ApiError, match="cannot be set over the wire") as caught:
            validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, {name: "x"}, broker_id=CONFIG.node_id)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    for name in (*CLASSES, "principal.builder.class", "listener.name.clients.principal.builder.class"):
        with pytest.raises(ApiError, match=r"Class no\.such could not be found"):
            validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, {name: "no.such"}, broker_id=CONFIG.node_id)
    for name, value in (("metric.reporters", "python:os:system"), ("metric.reporters", "file:/etc/x")):
        with pytest.raises(ApiError, match="over the wire"):
            validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, {name: value}, broker_id=CONFIG.node_id)
    assert why_without_effect("config.providers.mine.class") and not why_without_effect("of.nobody")


def test_a_listener_s_value_that_cannot_be_read_is_refused() -> None:
    """With INVALID_REQUEST, as the others are: also of what kbroker lacks."""
    changes = {"listener.name.clients.remote.log.reader.threads": "many"}
    with pytest.raises(ApiError, match="Not a number of type INT") as caught:
        validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=CONFIG.node_id)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
