"""BrokerConfig: what a server.properties comes to, and how a bad one is refused."""

import subprocess
import sys

import pytest

from kbroker.config import BrokerConfig, Listener, effective_topic_config
from kbroker.config.broker import BrokerProperties
from kbroker.errors import FatalError

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}
STOCK = COMBINED | {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "log.retention.hours": "168",
}


def config(**changes: str | None) -> BrokerConfig:
    """COMBINED with ``a__b`` standing for ``a.b``; None takes a property out."""
    properties: dict[str, str] = dict(COMBINED)
    for name, value in changes.items():
        if value is None:
            properties.pop(name.replace("__", "."), None)
        else:
            properties[name.replace("__", ".")] = value
    return BrokerConfig.from_properties(properties)


def test_the_stock_combined_node() -> None:
    stock = config()
    assert stock.node_id == 1
    assert stock.is_broker and stock.is_controller
    assert stock.listeners == (Listener("PLAINTEXT", "", 9092), Listener("CONTROLLER", "", 9093))
    assert stock.broker_listeners == (Listener("PLAINTEXT", "", 9092),)
    assert stock.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert stock.advertised_controller_listeners == (Listener("CONTROLLER", "localhost", 9093),)
    assert stock.controller_quorum_bootstrap_servers == (("localhost", 9093),)
    assert stock.log_dirs == ("/tmp/kafka-logs",)
    assert stock.metadata_log_dir == "/tmp/kafka-logs"


def test_every_declared_attribute_is_there() -> None:
    stock = config()
    for name in (*BrokerProperties.__annotations__, *(key.attribute for key in BrokerProperties.KEYS)):
        getattr(stock, name)
    with pytest.raises(AttributeError):
        stock.node_id = 2


def test_broker_id_stands_for_node_id() -> None:
    assert config(node__id=None, broker__id="7").node_id == 7


def test_log_dirs_go_before_log_dir() -> None:
    assert config(log__dir="/a", log__dirs="/b, /c").log_dirs == ("/b", "/c")
    assert config(log__dir="/a").log_dirs == ("/a",)
    assert config(metadata__log__dir="/m").metadata_log_dir == "/m"


def test_the_advertised_controller_comes_from_the_voters() -> None:
    node = config(
        advertised__listeners="PLAINTEXT://localhost:9092",
        controller__quorum__voters="1@example.org:9093",
        controller__quorum__bootstrap__servers=None,
    )
    assert node.advertised_controller_listeners == (Listener("CONTROLLER", "example.org", 9093),)


def test_unknown_names_are_kept_and_told() -> None:
    node = config(my__plugin__setting="x", num__io__threads="4")
    assert node.unknown == ("my.plugin.setting",)
    assert node.raw["my.plugin.setting"] == "x"
    assert node.without_effect == ("num.io.threads",)


def test_what_kbroker_does_not_have_is_told_unless_it_is_set_to_its_default() -> None:
    node = config(
        ssl__client__auth="required",
        ssl__provider="Conscrypt",
        ssl__protocol="TLSv1.3",
        group__share__max__size="200",
        share__coordinator__load__buffer__size="20000",
        remote__log__storage__system__enable="false",
        authorizer__class__name="",
        **{
            "listener.name.plaintext.sasl.login.class": "x",
            "listener.name.plaintext.max.connections": "7",
            "listener.name.plaintext.num.network.threads": "7",
        },
    )
    assert node.absent == {
        "listener.name.plaintext.sasl.login.class": "kbroker loads no Java classes",
        "share.coordinator.load.buffer.size": "kbroker's coordinators run on the one event loop",
        "ssl.provider": "kbroker's TLS is OpenSSL's, and there is no JVM",
    }
    assert node.unknown == ("listener.name.plaintext.num.network.threads",)
    assert node.values["listener.name.plaintext.max.connections"] == 7
    assert node.values["ssl.client.auth"] == "required"
    assert node.values["share.coordinator.load.buffer.size"] == 20_000


def test_the_authorizers_own_properties_are_known_if_there_is_one() -> None:
    of_authorizer = {"super__users": "User:a", "allow__everyone__if__no__acl__found": "true"}
    names = ("allow.everyone.if.no.acl.found", "super.users")
    assert config(**of_authorizer).unknown == config(**of_authorizer, authorizer__class__name="").unknown == names
    node = config(**of_authorizer, authorizer__class__name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    assert node.unknown == () and node.absent == {}


def test_a_stock_file_needs_no_table_of_what_is_absent() -> None:
    program = f"""
import sys
from kbroker.config import BrokerConfig
node = BrokerConfig.from_properties({STOCK!r})
assert node.absent == {{}} and node.unknown == ()
assert "kbroker.config.absent" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_secrets_are_not_shown() -> None:
    node = config(ssl__keystore__password="hunter2", **{"listener.name.x.sasl.jaas.config": "hunter3"})
    assert "hunter" not in repr(node)
    assert "node.id=1" in repr(node)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node__id": None}, "node.id"),
        ({"node__id": "x"}, "node.id"),
        ({"node__id": "-1"}, "node.id"),
        ({"broker__id": "2"}, "broker.id"),
        ({"process__roles": None}, "process.roles"),
        ({"process__roles": "observer"}, "process.roles"),
        ({"process__roles": "broker,broker"}, "process.roles"),
        ({"controller__listener__names": None}, "controller.listener.names"),
        ({"controller__listener__names": "OTHER"}, "CONTROLLER has no security protocol"),
        ({"controller__quorum__bootstrap__servers": None}, "controller.quorum"),
        ({"controller__quorum__bootstrap__servers": "localhost"}, "controller.quorum.bootstrap.servers"),
        ({"controller__quorum__voters": "2@localhost:9093"}, "controller.quorum.voters"),
        ({"controller__quorum__voters": "localhost:9093"}, "controller.quorum.voters"),
        ({"process__roles": "broker"}, "listeners"),
        ({"process__roles": "controller"}, "listeners"),
        ({"listeners": "PLAINTEXT:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://:99999"}, "listeners"),
        ({"listeners": ""}, "listeners"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "9092"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "different name"),
        ({"listeners": "PLAINTEXT://:-1"}, "names no port that can be listened at"),
        ({"listeners": "EXTERNAL://:9092,CONTROLLER://:9093"}, "EXTERNAL"),
        ({"listeners": "TLS://:9092,CONTROLLER://:9093"}, "TLS"),
        ({"listener__security__protocol__map": "PLAINTEXT:PLAIN"}, "listener.security.protocol.map"),
        ({"inter__broker__listener__name": "CONTROLLER"}, "inter.broker.listener.name"),
        ({"inter__broker__listener__name": "NONE"}, "inter.broker.listener.name"),
        ({"security__inter__broker__protocol": "PLAINTEXT"}, "security.inter.broker.protocol"),
        ({"advertised__listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners"),
        ({"advertised__listeners": "CONTROLLER://localhost:9093"}, "listener"),
        ({"max__connections__per__ip": "0"}, "max.connections.per.ip"),
        ({"max__connections__per__ip__overrides": "127.0.0.1"}, "max.connections.per.ip.overrides"),
        ({"log__roll__ms": "0"}, "log.roll.ms"),
        ({"log__retention__ms": "0"}, "log.retention.ms"),
        ({"log__cleaner__min__compaction__lag__ms": "9", "log__cleaner__max__compaction__lag__ms": "8"}, "lag"),
        ({"log__cleaner__dedupe__buffer__size": "1024"}, "log.cleaner.dedupe.buffer.size"),
        ({"queued__max__request__bytes": "10"}, "queued.max.request.bytes"),
        ({"replica__fetch__wait__max__ms": "60000"}, "replica"),
        ({"group__consumer__assignors": "uniform,org.example.Assignor"}, "group.consumer.assignors"),
        ({"group__consumer__assignors": ""}, "group.consumer.assignors"),
        (
            {"group__consumer__assignors": "uniform,python:mine:range"},
            "the name range is that of an assignor of Kafka's",
        ),
        ({"group__consumer__assignors": "python:a:mine,python:b:mine"}, "another assignor of the name mine"),
        ({"group__streams__assignors": "python:mine"}, "is not of the form python:MODULE:NAME"),
        (
            {"group__streams__assignors": "sticky,org.example.Assignor"},
            "no assignor 'org.example.Assignor', only sticky",
        ),
        ({"group__share__assignors": "simple,python:a:mine"}, "share groups have one assignor"),
        ({"group__consumer__session__timeout__ms": "44999"}, "group.consumer.min.session.timeout.ms"),
        ({"group__consumer__heartbeat__interval__ms": "15001"}, "group.consumer.max.heartbeat.interval.ms"),
        ({"group__consumer__max__assignment__interval__ms": "9"}, "group.consumer.max.assignment.interval.ms"),
        (
            {"group__consumer__min__session__timeout__ms": "1", "group__consumer__session__timeout__ms": "5000"},
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        (
            {"authorizer__class__name": "org.example.Authorizer"},
            "authorizer.class.name: org.example.Authorizer is not supported, only "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ({"early__start__listeners": "PLAINTEXT,OTHER"}, "early.start.listeners contains listener OTHER"),
        ({"remote__log__storage__system__enable": "true"}, "remote.log.storage.system.enable"),
        ({"cordoned__log__dirs": "/nowhere"}, "Missing entries : /nowhere"),
        ({"principal__builder__class": "org.example.Principals"}, "principal.builder.class"),
        ({"ssl__client__auth": "perhaps"}, "ssl.client.auth"),
        ({"remote__log__reader__threads": "many"}, "remote.log.reader.threads"),
        ({"listener.name.plaintext.ssl.client.auth": "perhaps"}, "ssl.client.auth"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, str | None], said: str) -> None:
    with pytest.raises(FatalError) as caught:
        config(**changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_listeners_with_their_own_addresses() -> None:
    node = config(
        listeners="INTERNAL://:9092,EXTERNAL://[::1]:9094,CONTROLLER://:9093",
        advertised__listeners="INTERNAL://broker:9092,EXTERNAL://example.org:443",
        listener__security__protocol__map="internal:PLAINTEXT,EXTERNAL:plaintext,CONTROLLER:PLAINTEXT",
        inter__broker__listener__name="internal",
    )
    assert node.broker_listeners == (Listener("INTERNAL", "", 9092), Listener("EXTERNAL", "::1", 9094))
    assert node.advertised_listeners[1] == Listener("EXTERNAL", "example.org", 443)
    assert str(node.broker_listeners[1]) == "EXTERNAL://[::1]:9094"


def test_the_same_port_on_both_ip_versions() -> None:
    node = config(
        listeners="A://127.0.0.1:9092,B://[::1]:9092,CONTROLLER://:9093",
        advertised__listeners=None,
        listener__security__protocol__map="A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter__broker__listener__name="A",
    )
    assert len(node.broker_listeners) == 2


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({}, "retention.ms", 7 * 24 * 3_600_000),
        ({"log__retention__hours": "1"}, "retention.ms", 3_600_000),
        ({"log__retention__hours": "1", "log__retention__minutes": "2"}, "retention.ms", 120_000),
        ({"log__retention__minutes": "2", "log__retention__ms": "3"}, "retention.ms", 3),
        ({"log__retention__hours": "-5"}, "retention.ms", -1),
        ({"log__roll__hours": "2"}, "segment.ms", 7_200_000),
        ({"log__roll__jitter__hours": "1"}, "segment.jitter.ms", 3_600_000),
        ({"log__flush__scheduler__interval__ms": "50"}, "flush.ms", 50),
        ({"log__flush__scheduler__interval__ms": "50", "log__flush__interval__ms": "9"}, "flush.ms", 9),
        ({"message__max__bytes": "5000"}, "max.message.bytes", 5000),
        ({"log__cleanup__policy": "compact,delete"}, "cleanup.policy", ["compact", "delete"]),
        ({"min__insync__replicas": "2"}, "min.insync.replicas", 2),
    ],
)
def test_topics_take_their_defaults_from_the_broker(changes: dict[str, str], name: str, value: object) -> None:
    node = config(**changes)
    assert effective_topic_config(node, {})[name] == value


def test_a_topics_own_property_wins() -> None:
    node = config(log__retention__ms="3", log__segment__bytes="2097152")
    effective = effective_topic_config(node, {"retention.ms": "-1"})
    assert effective["retention.ms"] == -1
    assert effective["segment.bytes"] == 2097152


def test_properties_set_at_run_time_stand_between() -> None:
    node = config(log__retention__ms="3")
    dynamic = {"log.retention.ms": "4", "message.max.bytes": "not a number"}
    assert effective_topic_config(node, {}, dynamic)["retention.ms"] == 4
    assert effective_topic_config(node, {}, dynamic)["max.message.bytes"] == 1048588
    assert effective_topic_config(node, {"retention.ms": "5"}, dynamic)["retention.ms"] == 5


def test_changes_make_another_configuration() -> None:
    assert config().with_properties({"num.partitions": "6"}).num_partitions == 6


def test_what_may_be_a_secret_is_not_shown() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required password="hunter2";'
    told = repr(
        config(
            ssl__keystore__password="hunter2",
            listener__name__plaintext__plain__sasl__jaas__config=jaas,
            ssl__keystore__key="hunter2",
        )
    )
    assert "hunter2" not in told
    assert told.count("[hidden]") == 3 and "node.id=1" in told


@pytest.mark.parametrize(
    ("protocol", "properties", "authenticates"),
    [
        ("PLAINTEXT", {"ssl__client__auth": "required"}, False),
        ("SSL", {}, False),
        ("SSL", {"ssl__client__auth": "requested"}, False),
        ("SSL", {"ssl__client__auth": "required"}, True),
        ("SSL", {"ssl__client__auth": "required", "listener.name.plaintext.ssl.client.auth": "none"}, False),
    ],
)
def test_a_listener_authenticates_by_certificates_that_are_required(
    protocol: str, properties: dict[str, str], authenticates: bool
) -> None:
    node = config(listener__security__protocol__map=f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT", **properties)
    listener = next(each for each in node.listeners if each.name == "PLAINTEXT")
    assert node.authenticates(listener) is authenticates
