"""Each property that Apache Kafka 4.4.0 changes while a broker runs (KIP-226) is changed here with effect, or refused.

What changes is looked at where the parts of a node look for it each time; what does not is described as fixed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.config import BROKER_CONFIGS, BrokerConfig
from kbroker.config.definition import UpdateMode
from kbroker.config.dynamic import DYNAMIC_BROKER_CONFIGS, broker_config_key
from kbroker.config.fixed import why_fixed
from kbroker.config.security.tls import STORES as TLS_STORES
from kbroker.config.topic_values import TOPIC_CONFIG_SYNONYMS
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
from kbroker.node.listeners import Listeners
from kbroker.node.log_cleaner import CleanerSettings
from kbroker.raft_metadata.config_entries import broker_entries
from kbroker.raft_metadata.config_schema import ConfigSchema, broker_value, group_config
from kbroker.raft_metadata.controller.config_validation import validate_broker_config
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, ResourceType
from kbroker.transactions.settings import TransactionSettings
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records.metadata import ConfigRecord
from tests.handlers.metadata_plane import properties

FACTS = json.loads((Path(__file__).parent / "facts" / "kafka_configs.json").read_text("utf-8"))["configs"]
MODES = {row[1]: row[7] for row in FACTS if row[0] == "broker" and row[7] != "read-only"}
"""Name -> update mode of every property of a broker that Apache Kafka 4.4.0 names dynamic."""

CONFIG = BrokerConfig.from_properties(properties(Path("data")))
SCHEMA = ConfigSchema(CONFIG)


class Seen(NamedTuple):
    """A node that has followed the metadata."""

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
}
WRONG_PLACE = TLS_STORES
"""With a listener's prefix alone; what happens then is seen in tests/node/test_tls_changes.py."""


def other_value(name: str) -> str:
    key = broker_config_key(name)
    assert key is not None
    if name in OTHER_VALUES:
        return OTHER_VALUES[name]
    default = key.default_value()
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
    return Seen(image, dynamic)


def described_as_fixed(name: str) -> bool:
    """Or not described at all, as what is internal in Kafka."""
    return all(each.read_only for each in broker_entries(SCHEMA, EMPTY_IMAGE.configs) if each.name == name)


def changeable() -> list[str]:
    of_topics = {synonym for synonyms in TOPIC_CONFIG_SYNONYMS.values() for synonym, _ in synonyms}
    keys = {name: BROKER_CONFIGS[name] for name in of_topics if name in BROKER_CONFIGS}
    return sorted(name for name in MODES if name in LOOKS or (name in keys and not keys[name].no_effect))


@pytest.mark.parametrize("name", changeable())
def test_a_change_is_taken_and_seen(name: str) -> None:
    broker_id = CONFIG.node_id if MODES[name] == UpdateMode.PER_BROKER else None
    changes = {name: other_value(name)}
    validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=broker_id)
    look = LOOKS.get(name, log)
    before = look(node_with("", {}))
    after = look(node_with("" if broker_id is None else str(broker_id), changes))
    assert before != after
    assert not described_as_fixed(name)


@pytest.mark.parametrize("name", sorted(MODES.keys() - set(changeable()) - WRONG_PLACE))
def test_what_would_change_nothing_is_described_as_fixed_and_refused(name: str) -> None:
    assert described_as_fixed(name)
    broker_id = CONFIG.node_id
    with pytest.raises(ApiError) as caught:
        validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, {name: other_value(name)}, broker_id=broker_id)
    assert caught.value.code is ErrorCode.INVALID_REQUEST and name in str(caught.value)


def test_what_apache_kafka_fixes_is_fixed_here() -> None:
    fixed = [row[1] for row in FACTS if row[0] == "broker" and row[7] == "read-only"]
    assert len(fixed) > 100
    assert [name for name in fixed if not described_as_fixed(name)] == []


@pytest.mark.parametrize("name", sorted(WRONG_PLACE))
def test_stores_of_keys_change_for_one_listener(name: str) -> None:
    assert MODES[name] == UpdateMode.PER_BROKER
    with pytest.raises(ApiError, match="only per-listener using the listener prefix"):
        validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, {name: "x"}, broker_id=CONFIG.node_id)


def test_quotas_of_replication_exist_at_run_time_alone() -> None:
    """(``QuotaConfig.brokerQuotaConfigs``)"""
    changes = dict.fromkeys(DYNAMIC_BROKER_CONFIGS, "1000")
    validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=None)


def test_a_reason_is_the_same_with_a_listener_s_prefix() -> None:
    for name in ("ssl.cipher.suites", "sasl.jaas.config", "principal.builder.class", "ssl.provider"):
        prefixed = f"listener.name.clients.{name}"
        assert why_fixed(name) and why_fixed(prefixed) == why_fixed(name).replace(name, prefixed)
    assert [why_fixed(f"listener.name.clients.{name}") for name in sorted(TLS_STORES)] == [""] * len(TLS_STORES)
    assert "read files" in why_fixed("config.providers.mine.class") and not why_fixed("of.nobody")


def test_a_listener_s_value_that_cannot_be_read_is_refused() -> None:
    """With INVALID_REQUEST, as the others are: also of what kbroker lacks."""
    changes = {"listener.name.clients.remote.log.reader.threads": "many"}
    with pytest.raises(ApiError, match="Not a number of type INT") as caught:
        validate_broker_config(SCHEMA, EMPTY_IMAGE.configs, changes, broker_id=CONFIG.node_id)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
