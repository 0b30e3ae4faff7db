"""Stock clients log in by PLAIN and SCRAM, with right and wrong passwords, and authenticate again."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.raft_metadata.controller.scram import credential_record
from kbroker.security.sasl.scram import ScramCredential, ScramMechanism
from kbroker.testing import RunningBroker, running_broker
from tests.conftest import FAST_START
from tests.patience import LONG

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRETS = ("alice-secret", "broker-secret", "carol-secret", "wrong-secret")
PROPERTIES = {
    "listeners": "CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "connection.failed.authentication.delay.ms": "1",
    "listener.name.clients.scram-sha-256.connections.max.reauth.ms": "6000",
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required username="broker" password="broker-secret"'
        ' user_broker="broker-secret" user_alice="alice-secret" user_carol="carol-secret";'
    ),
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def node() -> Iterator[RunningBroker]:
    logger = logging.getLogger("kbroker")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    with running_broker(PROPERTIES) as running:
        admin = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient(confluent(running, "PLAIN", "alice", "alice-secret"))
        for mechanism in (admin.ScramMechanism.SCRAM_SHA_256, admin.ScramMechanism.SCRAM_SHA_512):
            info = admin.ScramCredentialInfo(mechanism, 8192)
            upsertion = admin.UserScramCredentialUpsertion("carol", info, b"carol-secret")
            for future in client.alter_user_scram_credentials([upsertion]).values():
                assert future.result(LONG) is None
        yield running
        logger.setLevel(level)
        text = "\n".join(record.getMessage() for record in running.logs)
        assert "node 1 serves CLIENTS" in text
        assert not any(secret in text for secret in SECRETS)


def confluent(node: RunningBroker, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(node: RunningBroker, mechanism: str) -> None:
    errors: list[Any] = []
    for number in range(3):  # librdkafka renews a session a tenth before its end, which a busy machine may be late for
        errors = _errors_of_confluent_kafka(node, mechanism, f"ck-{mechanism}-{number}")
        if not errors:
            break
    assert errors == []


def _errors_of_confluent_kafka(node: RunningBroker, mechanism: str, topic: str) -> list[Any]:
    ck = pytest.importorskip("confluent_kafka")
    errors: list[Any] = []
    options = confluent(node, mechanism, "carol", "carol-secret") | {"error_cb": errors.append}
    producer = ck.Producer(options)
    consumer = ck.Consumer(options | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    sent = 0
    got: list[bytes] = []
    began = time.monotonic()
    # Longer than a session, where sessions end: both authenticate again on the way, and lose nothing.
    lasts = 6.5 if mechanism == "SCRAM-SHA-256" else 0.1
    while time.monotonic() < began + lasts or (len(got) < sent and time.monotonic() < began + 180):
        if time.monotonic() < began + lasts:
            producer.produce(topic, b"%d" % sent, partition=0)
            sent += 1
            assert producer.flush(LONG) == 0
        got += [message.value() for message in consumer.consume(1000, 0.02) if not message.error()]
    consumer.close()
    assert got == [b"%d" % number for number in range(sent)]
    return errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["carol", "nobody"])
def test_confluent_kafka_with_a_wrong_password(node: RunningBroker, mechanism: str, user: str) -> None:
    ck = pytest.importorskip("confluent_kafka")
    errors: list[Any] = []
    producer = ck.Producer(confluent(node, mechanism, user, "wrong-secret") | {"error_cb": errors.append})
    producer.produce("t", b"x")
    deadline = time.monotonic() + LONG
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    producer.purge()
    assert errors[0].code() == ck.KafkaError._AUTHENTICATION
    assert "Authentication failed" in errors[0].str()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(node: RunningBroker, mechanism: str) -> None:
    kafka = pytest.importorskip("kafka")
    options = {
        "bootstrap_servers": node.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "carol",
        "sasl_plain_password": "carol-secret",
    }
    producer = kafka.KafkaProducer(**options)
    assert producer.send(f"kp-{mechanism}", b"x").get(timeout=LONG).offset == 0
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(node: RunningBroker, mechanism: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    def producer(password: str) -> Any:
        return aiokafka.AIOKafkaProducer(
            bootstrap_servers=node.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="carol",
            sasl_plain_password=password,
        )

    async def main() -> None:
        good, bad = producer("carol-secret"), producer("wrong-secret")
        await good.start()
        try:
            sent = await good.send_and_wait(f"aio-{mechanism}", b"x")
            assert sent.offset == 0
        finally:
            await good.stop()
        try:
            with pytest.raises(aiokafka.errors.KafkaError):
                await bad.start()
        finally:
            await bad.stop()

    asyncio.run(main())


def test_kafkas_own_tool_sets_a_user(node: RunningBroker, kafka_home: Path, tmp_path: Path) -> None:
    options = tmp_path / "client.properties"
    options.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="carol" password="carol-secret";\n'
    )
    command = ["java", "-Xmx96M", *FAST_START, "-cp", f"{kafka_home}/libs/*", "kafka.admin.ConfigCommand"]
    command += ["--bootstrap-server", node.bootstrap_servers, "--command-config", str(options), "--alter"]
    command += ["--add-config", "SCRAM-SHA-256=[iterations=8192,password=dave]", "--entity-type", "users"]
    done = subprocess.run([*command, "--entity-name", "dave"], capture_output=True, text=True, check=False)
    assert "Completed updating config for user dave" in done.stdout, done.stderr
    stored = node.in_broker(lambda broker: broker.metadata.image.principals.scram["dave", 1])
    mechanism = ScramMechanism.SCRAM_SHA_256
    credential = ScramCredential.from_password(mechanism, "dave", salt=bytes(stored.salt), iterations=8192)
    assert stored == credential_record("dave", mechanism, credential)
