"""The identity of a connection: names of certificates, hosts of rights, and sessions that end (KIP-368)."""

from __future__ import annotations

import time

import pytest

from compat_tests.security.conftest import FULL
from compat_tests.security.kept import kept_producer
from compat_tests.security.servers import SESSION_SECONDS
from compat_tests.security.world import World, refused
from tests.patience import eventually


def test_certificate_names_its_user(world: World) -> None:
    topic = world.topic()
    upper = world.servers.authority.identity(world.name("USER").upper(), "clients")
    user = upper.pem.stem.lower()  # by ssl.principal.mapping.rules
    by_certificate, without = world.servers.tls(upper.pem), world.servers.tls()
    mtls, ssl = world.servers.bootstrap("MTLS"), world.servers.bootstrap("SSL")
    assert world.misses(mtls, by_certificate, topic)
    world.allow(user, "topic", topic, "describe")
    eventually(lambda: world.sees(mtls, by_certificate, topic))
    # Where nobody asks for the certificate, its owner is anonymous.
    assert world.misses(ssl, by_certificate, topic)
    world.allow("ANONYMOUS", "topic", topic, "describe")
    eventually(lambda: world.sees(ssl, without, topic))
    world.forget("ANONYMOUS")
    world.forget(user)


@pytest.mark.parametrize(
    ("elsewhere", "here", "denied"),
    [
        pytest.param("192.0.2.1", "127.0.0.1", "127.0.0.1", id="host"),
        pytest.param("192.0.2.0/24", "127.0.0.0/8", "127.0.0.0/30", id="range"),  # KIP-1276
    ],
)
def test_right_holds_from_its_hosts_alone(world: World, elsewhere: str, here: str, denied: str) -> None:
    user, password = world.user()
    security = world.servers.sasl("SASL_SSL", "SCRAM-SHA-256", user, password)
    address = world.servers.bootstrap("SASL_SSL")
    near, far = world.topic(), world.topic()
    world.allow(user, "topic", far, "describe", host=elsewhere)
    world.allow(user, "topic", near, "describe", host=here)
    eventually(lambda: world.sees(address, security, near))
    assert world.misses(address, security, far)
    world.deny(user, "topic", near, "describe", host=denied)
    eventually(lambda: world.misses(address, security, near))
    world.forget(user)


LOGIN_FAILED = {"confluent-kafka": "_AUTHENTICATION", "java": "SASL_AUTHENTICATION_FAILED"}
"""The names that clients give it; others try until their time is over, and say that alone."""


# kafkajs renews a session of less than ten seconds before each request, sooner than a broker lets it.
@pytest.mark.parametrize("name", ("confluent-kafka", *(("kafka-python", "aiokafka", "java") if FULL else ())))
def test_session_is_renewed_and_ends_with_its_user(world: World, name: str) -> None:
    user, password = world.user("session", "SCRAM-SHA-512")
    security = world.servers.sasl("SASL_PLAINTEXT", "SCRAM-SHA-512", user, password)
    topic = world.topic(world.open_name())
    producer = kept_producer(world, name, "NARROW", security)
    brief = kept_producer(world, name, "NARROW", security, patience=5)  # librdkafka's tries as long as it may
    try:
        producer.send(topic)
        eventually(lambda: refused(lambda: brief.send(topic)) == "")
        begin = time.monotonic()
        while time.monotonic() < begin + 1.6 * SESSION_SECONDS:
            assert refused(lambda: producer.send(topic)) == ""
            time.sleep(0.05)  # the load of a slow producer, over the ends of sessions
        world.put_password(user, "another", "SCRAM-SHA-512")

        def is_over() -> bool:
            told = refused(lambda: brief.send(topic))
            return told != "" and told == LOGIN_FAILED.get(name, told)

        eventually(is_over)
    finally:
        producer.close()
        brief.close()
