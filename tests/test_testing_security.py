"""``running_broker(security=...)``: certificates, users and what clients need."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kbroker.client import Client
from kbroker.client.errors import AuthenticationFailed, ResponseError
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker, running_broker, running_cluster
from tests.every_node import await_nodes, await_topics
from tests.patience import LONG, LONG_MS, SHORT

pytest.importorskip("cryptography")


def client(given: dict[str, str]) -> Client:
    properties = ClientProperties(given)
    return Client(properties["bootstrap.servers"], security=security_of(properties), timeout=SHORT)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_enter_by_each_mechanism(kafka_secure_broker: RunningBroker, mechanism: str) -> None:
    given = kafka_secure_broker.client_properties("alice", mechanism=mechanism)
    with client(given) as alice:
        alice.refresh(())
        assert len(alice.brokers) == 1
    wrong = {**given, "sasl.jaas.config": given["sasl.jaas.config"].replace("alice-secret", "another")}
    with client(wrong) as stranger, pytest.raises(AuthenticationFailed, match="SASL_AUTHENTICATION_FAILED"):
        stranger.refresh(())


def test_super_users_have_an_authorizer_beside_them(kafka_secure_broker: RunningBroker) -> None:
    from kbroker.client.acls import describe_acls
    from kbroker.security.authorizer.acls import AclFilter

    with client(kafka_secure_broker.client_properties("admin")) as admin:
        assert describe_acls(admin, AclFilter()) == []
    with client(kafka_secure_broker.client_properties("alice")) as alice, pytest.raises(ResponseError) as error:
        describe_acls(alice, AclFilter())
    assert error.value.name == "CLUSTER_AUTHORIZATION_FAILED"


def test_stock_clients_take_the_properties(kafka_secure_broker: RunningBroker) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    kafka = pytest.importorskip("kafka")
    producer = confluent_kafka.Producer(kafka_secure_broker.librdkafka_properties("admin"))
    producer.produce("stock", b"v")
    assert producer.flush(LONG) == 0
    consumer = kafka.KafkaConsumer(
        "stock",
        **kafka_secure_broker.python_options("admin"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=LONG_MS,
    )
    assert next(consumer).value == b"v"
    consumer.close()


def test_certificates_instead_of_passwords() -> None:
    with running_broker({"ssl.client.auth": "required"}, security="ssl") as broker:
        with client(broker.client_properties("alice")) as alice:
            alice.refresh(())
        with client(broker.client_properties()) as nobody, pytest.raises(AuthenticationFailed, match="certificate"):
            nobody.refresh(())
        options = broker.python_options("alice")
        assert options["security_protocol"] == "SSL" and isinstance(options["ssl_context"], ssl.SSLContext)
        assert "ssl.key.location" in broker.librdkafka_properties("alice")


def test_a_restart_and_a_second_broker_on_kept_data(tmp_path: Path) -> None:
    users = {"bob": 'a "quoted" \\ pass=word;'}
    with running_broker(security="sasl_plaintext", users=users, data_dir=tmp_path) as broker:
        broker.restart()
        with client(broker.client_properties()) as bob:
            create_topics(bob, [])
    with (
        running_broker(security="sasl_plaintext", users={"bob": "new"}, data_dir=tmp_path) as broker,
        client(broker.client_properties("bob")) as bob,
    ):
        bob.refresh(())
        assert not any("new" in record.getMessage().split() for record in broker.logs)


def test_arguments_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="need security"):
        RunningBroker(users={"a": "b"})
    with pytest.raises(ValueError, match="known by their certificates"):
        RunningBroker(security="ssl", users={"a": "b"})
    with pytest.raises(ValueError, match="carol is one of super_users"):
        RunningBroker(security="sasl_ssl", super_users=["carol"])
    with running_broker() as broker:
        assert broker.client_properties() == {"bootstrap.servers": broker.bootstrap_servers}
        with pytest.raises(ValueError, match="without security"):
            _ = broker.security


@pytest.mark.slow
def test_three_secure_nodes() -> None:
    with running_cluster(3, secure=True) as cluster:
        with client(cluster.client_properties("admin")) as admin:
            assert not isinstance(create_topics(admin, [NewTopic("t", 3, 3)])["t"], ResponseError)
        await_topics(cluster, "t")
        cluster.leader_of("t").kill()
        cluster.heal()  # the node that comes back is let in by the others
        await_nodes(cluster, [1, 2, 3])
        with client(cluster.client_properties()) as programs:
            assert [topic.error_code for topic in programs.refresh(["t"])] == [0]
            assert len(programs.brokers) == 3
        with pytest.raises(ValueError, match="eve is not one of the users"):
            cluster.client_properties("eve")
        with pytest.raises(ValueError, match="SCRAM-SHA-512 alone"):
            cluster.librdkafka_properties("admin", mechanism="PLAIN")
