"""kafka-configs: topics, brokers, groups, loggers and clients."""

from __future__ import annotations

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison

TOOL = "kafka-configs"


class Entity:
    """One entity's configs, described and altered with the tool."""

    def __init__(self, compare: Comparison, *options: str) -> None:
        self._compare = compare
        self._options = options

    def describe(self, *options: str, exit: int = 0) -> None:
        """Its dynamic configs; the tool prints them in no order."""
        self._compare.server(TOOL, "--describe", *self._options, *options, exit=exit, ordered=False)

    def described(self, pattern: str, *options: str) -> None:
        """The same, once the broker has heard of the last change."""
        self._compare.server_until(pattern, TOOL, "--describe", *self._options, *options, ordered=False)

    def add(self, configs: str, exit: int = 0) -> None:
        """Set `configs`."""
        self._compare.server(TOOL, "--alter", *self._options, "--add-config", configs, exit=exit)

    def delete(self, names: str, exit: int = 0) -> None:
        """Take `names` out."""
        self._compare.server(TOOL, "--alter", *self._options, "--delete-config", names, exit=exit)


@feature("kafka-configs, topics")
def test_topics(compare: Comparison) -> None:
    compare.topic("configs-topic")
    topic = Entity(compare, "--entity-type", "topics", "--entity-name", "configs-topic")
    topic.describe()
    topic.add("retention.ms=3600000,cleanup.policy=[compact,delete]")
    topic.described("retention.ms")
    topic.add("retention.ms=7200000,flush.messages=17")
    topic.described("flush.messages")
    topic.delete("retention.ms,flush.messages")
    topic.described("(?s)^((?!retention).)*$")
    topic.delete("flush.ms")
    topic.delete("no.such.config")
    topic.add("retention.ms=100,local.retention.ms=200")
    topic.add("leader.replication.throttled.replicas=[0:1,1:1]")
    topic.described("throttled")
    topic.delete("local.retention.ms,leader.replication.throttled.replicas")
    for wrong in (
        "no.such.config=1",
        "retention.ms=soon",
        "retention.ms=",
        "cleanup.policy=sometimes",
        "segment.bytes=1",
        "compression.gzip.level=99",
        "min.cleanable.dirty.ratio=2",
        "min.cleanable.dirty.ratio=half",
        "preallocate=perhaps",
        "message.timestamp.type=Never",
        "remote.storage.enable=true",
        "min.compaction.lag.ms=100,max.compaction.lag.ms=10",
        "leader.replication.throttled.replicas=here",
        "retention.ms",
    ):
        topic.add(wrong, exit=1)
    compare.file("more.properties", "retention.bytes=1000000\ndelete.retention.ms=1000\n")
    compare.server(
        TOOL,
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        "configs-topic",
        "--add-config-file",
        "{dir}/more.properties",
    )
    topic.described("retention.bytes")
    compare.server(TOOL, "--describe", "--topic", "configs-topic")
    never = Entity(compare, "--entity-type", "topics", "--entity-name", "configs-never")
    never.describe()
    never.add("retention.ms=1", exit=1)
    Entity(compare, "--entity-type", "topics", "--entity-default").add("retention.ms=1", exit=1)


@feature("kafka-configs, all configs of a topic")
def test_all_topic(compare: Comparison) -> None:
    compare.topic("configs-all", 1, "--config", "retention.ms=100000", "--config", "cleanup.policy=compact")
    topic = Entity(compare, "--entity-type", "topics", "--entity-name", "configs-all")
    topic.describe("--all")
    broker = Entity(compare, "--entity-type", "brokers", "--entity-default")
    broker.add("log.retention.ms=200000,log.flush.interval.ms=3000")
    broker.described("log.retention.ms")
    # Apache Kafka tells of a default before it goes by it.
    topic.described("DEFAULT_BROKER_CONFIG:log.retention.ms=200000", "--all")
    broker.delete("log.retention.ms,log.flush.interval.ms")
    broker.described("(?s)^((?!log.retention.ms).)*$")


@feature("kafka-configs, all topics")
def test_every_topic(compare: Comparison) -> None:
    compare.topic("configs-each", 1, "--config", "retention.ms=100000")
    # All topics of the cluster, most of them made by other tests: the same ones on both sides.
    compare.server(TOOL, "--describe", "--entity-type", "topics", ordered=False)


@feature("kafka-configs, brokers")
def test_broker(compare: Comparison) -> None:
    broker = Entity(compare, "--entity-type", "brokers", "--entity-name", "1")
    broker.describe()
    broker.add("log.cleaner.threads=2,no.such.config=1")
    # Apache Kafka tells of what it is about to do before it has done it.
    broker.described(r"(?s)(?=.*log\.cleaner\.threads=2 )(?=.*no\.such\.config=)")
    broker.delete("no.such.config")
    broker.add("log.cleaner.io.buffer.load.factor=0.8,log.cleaner.backoff.ms=9000")
    broker.described(r"(?s)(?=.*backoff\.ms=9000 )(?=.*load\.factor=0\.8 )")
    broker.delete("log.cleaner.threads,log.cleaner.io.buffer.load.factor,log.cleaner.backoff.ms")
    broker.described(r"^Dynamic configs for broker 1 are:\s*$")
    for wrong in (
        "process.roles=broker",
        "node.id=7",
        "log.cleaner.threads=many",
        "log.cleaner.threads=99",
        "num.io.threads=0",
        "num.io.threads=3",
        "num.io.threads=17",
        "num.network.threads=1000",
        "num.replica.fetchers=3",
        "num.recovery.threads.per.data.dir=5",
        "background.threads=4",
        "log.cleaner.dedupe.buffer.size=1000000",
        "log.roll.ms=0",
        "log.local.retention.ms=999999999999",
        "log.local.retention.bytes=-1,log.retention.bytes=100",
        "max.connections.per.ip=0",
        "listeners=PLAINTEXT://127.0.0.1:1",
        "ssl.keystore.location=/tmp/nothing",
        "log.retention.ms=0",
        "message.max.bytes=-1",
        "log.cleanup.policy=never",
        "min.insync.replicas=0",
    ):
        broker.add(wrong, exit=1)
    Entity(compare, "--entity-type", "brokers", "--entity-name", "7").add("log.cleaner.threads=2", exit=1)
    Entity(compare, "--entity-type", "brokers", "--entity-name", "one").describe(exit=1)
    Entity(compare, "--entity-type", "brokers", "--entity-name", "one").add("log.cleaner.threads=2", exit=1)


@feature("kafka-configs, all brokers' defaults")
def test_broker_defaults(compare: Comparison) -> None:
    default = Entity(compare, "--entity-type", "brokers", "--entity-default")
    default.describe()
    default.add("log.flush.interval.messages=12345,log.cleaner.threads=2")
    default.described("log.cleaner.threads")
    one = Entity(compare, "--entity-type", "brokers", "--entity-name", "1")
    one.describe()
    one.add("log.cleaner.threads=2")
    one.described("DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2.*DEFAULT_BROKER_CONFIG:log.cleaner.threads=2")
    one.delete("log.cleaner.threads")
    default.add("advertised.listeners=PLAINTEXT://127.0.0.1:1", exit=1)
    default.add("log.cleaner.threads=few", exit=1)
    default.add("no.such.config=1", exit=0)
    default.delete("log.flush.interval.messages,log.cleaner.threads,no.such.config")
    default.described("(?s)^((?!log.cleaner.threads).)*$")
    changed = r"(?s)\A(?!.*(log\.cleaner\.threads|log\.flush\.interval\.messages))"
    compare.server_until(changed, TOOL, "--describe", "--entity-type", "brokers", ordered=False)
    compare.server(TOOL, "--describe", "--broker-defaults", ordered=False)


@feature("kafka-configs, all configs of a broker")
def test_all_broker(compare: Comparison) -> None:
    Entity(compare, "--entity-type", "brokers", "--entity-name", "1").describe("--all")


@feature("kafka-configs, groups")
def test_groups(compare: Comparison) -> None:
    group = Entity(compare, "--entity-type", "groups", "--entity-name", "configs-group")
    group.describe()
    group.describe("--all")
    group.add("consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000")
    group.described("consumer.session.timeout.ms")
    group.describe("--all")
    group.delete("consumer.session.timeout.ms")
    group.described("(?s)^((?!session).)*$")
    for wrong in (
        "no.such.config=1",
        "consumer.session.timeout.ms=soon",
        "consumer.session.timeout.ms=1",
        "consumer.session.timeout.ms=99999999",
        "consumer.heartbeat.interval.ms=1",
        "consumer.heartbeat.interval.ms=60000",
    ):
        group.add(wrong, exit=1)
    compare.server(TOOL, "--describe", "--entity-type", "groups", ordered=False)
    compare.server(TOOL, "--describe", "--group", "configs-group", ordered=False)
    group.delete("consumer.heartbeat.interval.ms")
    Entity(compare, "--entity-type", "groups", "--entity-name", "").describe()
    Entity(compare, "--entity-type", "groups", "--entity-default").add("consumer.session.timeout.ms=50000", exit=1)


@feature("kafka-configs, clients, users, ips")
def test_quotas(compare: Comparison) -> None:
    rates = {"clients": "consumer_byte_rate", "users": "producer_byte_rate", "ips": "connection_creation_rate"}
    for kind, config in rates.items():
        entity = Entity(compare, "--entity-type", kind, "--entity-name", "127.0.0.1")
        entity.describe()
        entity.add("no.such.config=1", exit=1)
        entity.add(f"{config}=1024")
        # The tool deletes what the broker tells of.
        entity.described(f"{config}=1024")
        entity.delete(config)


@feature("kafka-configs, loggers of a broker")
def test_broker_loggers(compare: Comparison) -> None:
    loggers = Entity(compare, "--entity-type", "broker-loggers", "--entity-name", "1")
    loggers.describe()
    loggers.add("root=WARN")
    loggers.describe()
    loggers.add("root=INFO")
    loggers.add("no.such.Logger=DEBUG", exit=1)
    loggers.add("root=LOUD", exit=1)
    loggers.delete("root", exit=1)
    loggers.delete("no.such.Logger", exit=1)
    one = Entity(compare, "--entity-type", "broker-loggers", "--entity-name", "one")
    one.describe(exit=1)
    one.add("root=WARN", exit=1)
    Entity(compare, "--entity-type", "broker-loggers", "--entity-default").describe(exit=1)


@feature("kafka-configs, kafka-client-metrics: subscriptions to clients' metrics")
def test_client_metrics(compare: Comparison) -> None:
    def subscription(*options: str, exit: int = 0) -> None:
        of_re2 = (": kbroker matches with RE2, which does not take this", "")
        compare.server("kafka-client-metrics", *options, exit=exit, ordered=False, aside=[of_re2])

    subscription("--list")
    subscription("--describe", "--name", "m")
    subscription("--alter", "--name", "m", "--metrics", "org.apache.", "--interval", "1000")
    compare.server_until("m", "kafka-client-metrics", "--list")
    subscription("--alter", "--name", "m", "--match", "client_software_name=apache-.*,client_id=[a-c]+")
    compare.server_until("apache-", "kafka-client-metrics", "--describe", "--name", "m", ordered=False)
    subscription("--describe")
    subscription("--alter", "--name", "m", "--interval", "1", exit=1)
    subscription("--alter", "--name", "m", "--match", "client=a", exit=1)
    subscription("--alter", "--name", "m", "--match", "client_id=[", exit=1)
    entity = Entity(compare, "--entity-type", "client-metrics", "--entity-name", "m")
    entity.describe()
    entity.describe("--all")
    entity.add("interval.ms=2000")
    entity.described("2000")
    entity.add("interval.ms=soon", exit=1)
    entity.add("no.such.config=1", exit=1)
    entity.delete("interval.ms,match,metrics")
    entity.described("(?s)^((?!metrics=).)*$")
    subscription("--alter", "--name", "n", "--metrics", "*")
    compare.server_until("n", "kafka-client-metrics", "--list")
    subscription("--delete", "--name", "n")
    subscription("--delete", "--name", "n")


@feature("kafka-configs, wrong usage")
def test_configs_usage(compare: Comparison) -> None:
    compare.server(TOOL, "--describe", exit=1)
    compare.server(TOOL, "--describe", "--entity-type", "shoes", exit=1)
    compare.server(TOOL, "--alter", "--entity-type", "topics", "--add-config", "a=b", exit=1)
    compare.server(TOOL, "--alter", "--entity-type", "topics", "--entity-name", "configs-never", exit=1)
