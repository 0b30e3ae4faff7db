"""Logins and certificates that are refused, and the error of every client."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from compat_tests.client_security import Security
from compat_tests.security.certificates import STORE_PASSWORD
from compat_tests.security.conftest import FULL
from compat_tests.security.refusals import GIVE_UP, LET_IN, attempt
from compat_tests.security.servers import SecureServers
from compat_tests.security.tokens import ELSEWHERE
from compat_tests.security.world import CLIENTS, SENDS_NONCE_TWICE, World, feature
from tests.patience import LONG


@dataclass(frozen=True)
class Fault:
    """A way to be refused: where, as whom, and what the client says (a pattern; by client where they differ)."""

    listener: str
    security: Callable[[SecureServers], Security]
    told: str
    told_by: dict[str, str]
    but: tuple[str, ...] = ()
    """Clients that it is not for."""


_UNTRUSTED = {
    "java": "SSL handshake failed",
    "kafkajs": "self-signed certificate in certificate chain",
    "kafka-python": "certificate verify failed: self-signed certificate|Unable to bootstrap",
    "aiokafka": "certificate verify failed: self-signed certificate",
}
_ELSEWHERE = {
    "java": "SSL handshake failed",
    "kafkajs": "does not match certificate's altnames",
    "kafka-python": "certificate is not valid for '127.0.0.1'|Unable to bootstrap",
    "aiokafka": "certificate is not valid for '127.0.0.1'",
}
# With TLS 1.3 the server learns of the client's certificate when the client believes to be connected already. Brokers
# differ in the alert they send then; a client that reads no alert sees a connection that ends.
_UNNAMED = {
    "java": "post-handshake|SSL handshake failed",
    "kafkajs": "SSL alert number|ECONNRESET|Closed connection",
    "kafka-python": "alert|closed|reset|Unable to bootstrap",
    "aiokafka": "alert|closed|reset",
}
_NO_MECHANISM = {
    "confluent-kafka": r"_AUTHENTICATION: .*Unsupported SASL mechanism: broker's supported mechanisms: SCRAM-SHA-512",
    "kcat": "Unsupported SASL mechanism: broker's supported mechanisms: SCRAM-SHA-512",
    "java": r"UNSUPPORTED_SASL_MECHANISM: Client SASL mechanism 'PLAIN' not enabled in the server, "
    r"enabled mechanisms are \[SCRAM-SHA-512\]",
    "kafkajs": "UNSUPPORTED_SASL_MECHANISM",
    "kafka-python": "UnsupportedSaslMechanism|PLAIN|socket disconnected",
    "aiokafka": "UnsupportedSaslMechanism",
}
# An answer that comes with the end of its connection is read by kafka-python at times only: Apache Kafka's, too.
_ENDED = {"kafka-python": "Authentication failed: Invalid username or password|socket disconnected"}
_ENDED_SCRAM = {"kafka-python": "due to invalid credentials with SASL mechanism SCRAM|socket disconnected"}
# kafkajs goes on after the broker's error, too, and makes nothing of the answer to its next request.
_NO_TOKEN = {"kafka-python": "invalid_token|socket disconnected", "kafkajs": "No brokers in the broker pool"}
_NO_CREDENTIALS = "due to invalid credentials with SASL mechanism "


def _as(protocol: str, mechanism: str, user: str = "alice", password: str | None = None) -> Callable[..., Security]:
    return lambda servers: servers.sasl(protocol, mechanism, user, password or servers.users["alice"])


FAULTS = {
    "wrong password": Fault(
        "SASL_SSL",
        _as("SASL_SSL", "PLAIN", password="not-hers"),
        "Authentication failed: Invalid username or password",
        _ENDED,
    ),
    "unknown user": Fault(
        "SASL_PLAINTEXT",
        _as("SASL_PLAINTEXT", "PLAIN", user="nobody"),
        "Authentication failed: Invalid username or password",
        _ENDED,
    ),
    "unknown user of SCRAM": Fault(
        "SASL_SSL", _as("SASL_SSL", "SCRAM-SHA-256", user="nobody"), f"{_NO_CREDENTIALS}SCRAM-SHA-256", _ENDED_SCRAM
    ),
    "wrong password of SCRAM": Fault(
        "SASL_PLAINTEXT",
        _as("SASL_PLAINTEXT", "SCRAM-SHA-512", user="known", password="not-theirs"),
        f"{_NO_CREDENTIALS}SCRAM-SHA-512",
        _ENDED_SCRAM,
    ),
    "token for another service": Fault(
        "TOKENS",
        lambda servers: servers.tokens(ELSEWHERE),
        "invalid_token",
        _NO_TOKEN,
        # kcat cannot ask a provider. aiokafka takes either broker's error for success; its next request is refused.
        but=("kcat", "aiokafka"),
    ),
    "mechanism that is off": Fault("NARROW", _as("SASL_PLAINTEXT", "PLAIN"), "", _NO_MECHANISM),
    "node of another authority": Fault(
        "SASL_SSL",
        lambda servers: replace(servers.plain("alice", "SASL_SSL"), ca=servers.other_authority.pem, java={}),
        "certificate verify failed",
        _UNTRUSTED,
    ),
    "node of another host": Fault("ELSEWHERE", lambda servers: servers.tls(), "certificate verify failed", _ELSEWHERE),
    "no certificate": Fault("MTLS", lambda servers: servers.tls(), "alert", _UNNAMED),
    "certificate of another authority": Fault("MTLS", lambda servers: servers.tls(servers.stranger), "alert", _UNNAMED),
    "no TLS": Fault(
        "SSL",
        lambda servers: Security("PLAINTEXT"),
        "(?i)disconnect|closed|reset|bootstrap|transport|brokers are down",
        {},
        # Java takes the alert for the length of an answer, and its admin client dies of the memory that it asks for.
        but=("java",),
    ),
}

# Without FULL each fault meets two clients, and each client three or four faults.
_PAIRS = [
    pytest.param(
        fault, name, id=f"{fault.replace(' ', '-')}-{name}", marks=feature(name, "who is refused, and told why")
    )
    for row, fault in enumerate(FAULTS)
    for column, name in enumerate(CLIENTS)
    if (FULL or (column - 2 * row) % 6 in (0, 1)) and name not in FAULTS[fault].but
]


@pytest.mark.parametrize(("fault", "name"), _PAIRS)
def test_client_is_refused(world: World, fault: str, name: str) -> None:
    case = FAULTS[fault]
    security = case.security(world.servers)
    if security.username == "known":
        known, _ = world.user("known", security.mechanism)
        security = replace(security, username=known)
    told, wanted = "", case.told_by.get(name, case.told)
    for give_up in GIVE_UP:
        said = attempt(world, name, case.listener, security, give_up)
        assert said != LET_IN
        told += f"{said}\n"
        if re.search(wanted, said):
            break
    assert re.search(wanted, told), told
    assert not security.password or security.password not in told


@pytest.mark.parametrize("name", CLIENTS)
def test_same_attempt_with_the_right_password_is_let_in(world: World, name: str) -> None:
    user, password = world.user()
    security = world.servers.sasl("SASL_SSL", "SCRAM-SHA-256", user, password)
    refusal = f"{_NO_CREDENTIALS}SCRAM-SHA-256"

    def is_right(said: str) -> bool:
        # Who sends a nonce twice is refused: it must be the server's (CVE-2024-56128).
        return refusal in said if name in SENDS_NONCE_TWICE else said == LET_IN

    told = []
    for give_up in GIVE_UP:
        told.append(attempt(world, name, "SASL_SSL", security, give_up))
        if is_right(told[-1]) or _NO_CREDENTIALS in told[-1]:
            break
    assert is_right(told[-1]), told


def test_no_secret_is_in_a_log(world: World) -> None:
    user, password = world.user("logged")
    for given in (password, password[:-1] + "!"):
        attempt(world, "confluent-kafka", "SASL_SSL", world.servers.sasl("SASL_SSL", "SCRAM-SHA-256", user, given))
        attempt(world, "confluent-kafka", "SASL_SSL", world.servers.sasl("SASL_SSL", "PLAIN", "alice", given))
    assert world.told_secrets() == []


def test_no_secret_is_described(world: World) -> None:
    (future,) = world.admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    told = future.result(LONG)
    logins = [name for name in told if name.endswith(("sasl.jaas.config", ".password"))]
    assert len(logins) >= 10
    assert [name for name in logins if told[name].value or not told[name].is_sensitive] == []
    values = "\n".join(str(entry.value) for entry in told.values())
    secrets = [*world.servers.users.passwords.values(), STORE_PASSWORD]
    assert not [secret[:12] for secret in secrets if secret in values]
