"""Spark over TLS and SASL: stores of every type, users and certificates, what it has to be allowed, and refusals.

Batch, stream and sink by each way to connect. `KBROKER_COMPAT_SECURITY_FULL=1`: more ways, and three nodes besides.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client_security import Security
from compat_tests.security.certificates import STORE_PASSWORD
from compat_tests.security.conftest import FULL, kind_of
from compat_tests.security.servers import SecureServers
from compat_tests.security.world import World, feature, running_world
from compat_tests.spark.records import Collected, numbers, read, read_stream, run_available, running, with_options
from compat_tests.spark.tokens import TokenProvider
from kbroker.config.properties_file import format_properties
from spark_examples import flights, secure
from tests.patience import LONG, eventually

PARTITIONS = 3
RECORDS = 120


@dataclass(frozen=True)
class Account:
    """A user, and how it comes to which listener."""

    user: str
    listener: str
    security: Security

    @property
    def options(self) -> dict[str, str]:
        """Properties of Kafka's client, with ``kafka.`` before each, as Spark takes them."""
        return {f"kafka.{name}": value for name, value in self.security.java_properties().items()}

    def with_java(self, properties: Mapping[str, str]) -> Account:
        """The same, but for these properties of Spark's client."""
        return replace(self, security=replace(self.security, java=properties))


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Secure nodes of the broker under test, and their administrator; afterwards no secret is in their logs."""
    given = getattr(request, "param", None)
    kind = given if isinstance(given, str) else kind_of(request.config)
    servers = SecureServers(*[kind] * (3 if FULL else 1), mechanism_between="SCRAM-SHA-512" if FULL else "PLAIN")
    with running_world(servers) as made:
        yield made


def by_password(world: World, mechanism: str) -> Account:
    """A fresh user of SASL_SSL, which trusts by a PKCS12 store; PLAIN has its users in the nodes' files."""
    if mechanism == "PLAIN":
        return Account("alice", "SASL_SSL", world.servers.plain("alice", "SASL_SSL"))
    user, password = world.user("spark", mechanism)
    return Account(user, "SASL_SSL", world.servers.sasl("SASL_SSL", mechanism, user, password))


def by_certificate(world: World, kind: str) -> Account:
    """A fresh name with a certificate; key store and trust store are of one type."""
    user = f"spark-{uuid.uuid4().hex[:8]}"
    authority = world.servers.authority
    identity = authority.identity(user, "clients")
    security = Security("SSL", ca=authority.pem, identity=identity.pem)
    if kind == "PEM":
        return Account(user, "MTLS", security)
    keys, trust = (identity.p12, authority.truststore()) if kind == "PKCS12" else (identity.jks(), jks_trust(world))
    stores = {**store("keystore", kind, keys), **store("truststore", kind, trust)}
    return Account(user, "MTLS", replace(security, java={**stores, "ssl.key.password": STORE_PASSWORD}))


def jks_trust(world: World) -> Path | None:
    return world.servers.authority.jks_truststore()


def store(what: str, kind: str, path: Path | None) -> dict[str, str]:
    """Properties of a key store or trust store. Skips where there is no keytool to make it."""
    if path is None:
        pytest.skip("there is no keytool")
    found = {f"ssl.{what}.type": kind, f"ssl.{what}.location": str(path)}
    return found if kind == "PEM" else {**found, f"ssl.{what}.password": STORE_PASSWORD}


def trusting(world: World, kind: str) -> dict[str, str]:
    """Properties of a trust store of one type; "text" has no file that had to be on each executor's machine."""
    authority = world.servers.authority
    if kind == "text":
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem.read_text()}
    return store("truststore", kind, authority.pem if kind == "PEM" else jks_trust(world))


WAYS: dict[str, Callable[[World], Account]] = {
    "SCRAM-SHA-512 and PKCS12": lambda world: by_password(world, "SCRAM-SHA-512"),
    "SCRAM-SHA-256 and PEM": lambda world: by_password(world, "SCRAM-SHA-256").with_java(trusting(world, "PEM")),
    "a certificate in JKS": lambda world: by_certificate(world, "JKS"),
    "a certificate in PKCS12": lambda world: by_certificate(world, "PKCS12"),
    "a certificate in PEM": lambda world: by_certificate(world, "PEM"),
    "PLAIN and JKS": lambda world: by_password(world, "PLAIN").with_java(trusting(world, "JKS")),
    "SCRAM-SHA-512 and PEM as text": lambda world: by_password(world, "SCRAM-SHA-512").with_java(
        trusting(world, "text")
    ),
}
_ALWAYS = ("SCRAM-SHA-512 and PKCS12", "a certificate in JKS")
"""PEM is seen in the example of a pipeline."""


def granted(world: World, account: Account, topic: str, *operations: str) -> str:
    """Give someone rights on a topic, and wait until each node knows; the topic."""
    world.allow(account.user, "topic", topic, *operations)
    security = replace(account.security, java={})
    for address in world.servers.bootstrap(account.listener).split(","):
        eventually(partial(World.sees, address, security, topic))
    return topic


def values(spark: Any, first: int, after: int) -> Any:
    """Rows for the sink: record n has key k<n> and value v<n>."""
    return spark.range(first, after).selectExpr("concat('k', id) AS key", "concat('v', id) AS value")


def write(frame: Any, world: World, account: Account, topic: str) -> None:
    bootstrap = world.servers.bootstrap(account.listener)
    with_options(frame.write.format("kafka"), bootstrap, {**account.options, "topic": topic}).save()


def rows_of(spark: Any, world: World, account: Account, topic: str) -> Any:
    return read(spark, world.servers.bootstrap(account.listener), subscribe=topic, **account.options)


def stream_of(spark: Any, world: World, account: Account, topic: str, **options: object) -> Any:
    return read_stream(spark, world.servers.bootstrap(account.listener), subscribe=topic, **options, **account.options)


@pytest.mark.parametrize(
    "way", [pytest.param(name, marks=feature("spark", f"by {name}")) for name in (WAYS if FULL else _ALWAYS)]
)
def test_sink_batch_and_stream(spark: Any, world: World, tmp_path: Path, way: str) -> None:
    """The user may write and read its topics, and nothing else: Spark needs no right on a group nor on the cluster."""
    account = WAYS[way](world)
    source, target = (granted(world, account, world.topic(partitions=PARTITIONS), "read", "write") for _ in range(2))
    write(values(spark, 0, RECORDS), world, account, source)
    assert numbers(rows_of(spark, world, account, source)) == list(range(RECORDS))
    for records in (RECORDS, 2 * RECORDS):  # the second time it goes on from its checkpoint
        rows = stream_of(spark, world, account, source, maxOffsetsPerTrigger=RECORDS // 2).select("key", "value")
        options = {**account.options, "topic": target}
        writer = with_options(rows.writeStream.format("kafka"), world.servers.bootstrap(account.listener), options)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(int(LONG))
        assert numbers(rows_of(spark, world, account, target)) == list(range(records))
        if records == RECORDS:
            write(values(spark, RECORDS, 2 * RECORDS), world, account, source)
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    kept = "".join(path.read_text(errors="replace") for path in files)
    assert source in kept and "password" not in kept, "a checkpoint has offsets, and no secrets"


REFUSED = {
    "a wrong password": "SaslAuthenticationException",
    "an authority that is not trusted": "SslAuthenticationException",
    "no right on the topic": "TopicAuthorizationException",
}


@pytest.mark.parametrize("how", [pytest.param(name, marks=feature("spark", f"refused: {name}")) for name in REFUSED])
def test_refused(spark: Any, world: World, how: str) -> None:
    account = by_password(world, "SCRAM-SHA-512")
    admin = Account("admin", "SASL_SSL", world.servers.plain("admin", "SASL_SSL"))
    topic = granted(world, account, world.topic(), *(["describe"] if "right" in how else ["read", "write"]))
    if how == "a wrong password":
        account = replace(account, security=replace(account.security, password="not-it"))
    elif how == "an authority that is not trusted":
        other = str(world.servers.other_authority.pem)
        account = account.with_java({"ssl.truststore.type": "PEM", "ssl.truststore.location": other})
    write(values(spark, 0, 5), world, admin, topic)
    with pytest.raises(Exception, match=REFUSED[how]):
        rows_of(spark, world, account, topic).collect()
    with pytest.raises(Exception, match=REFUSED[how]):
        write(values(spark, 5, 10), world, account, topic)
    assert numbers(rows_of(spark, world, admin, topic)) == list(range(5))


@feature("spark", "a right that is taken from a running stream")
def test_a_stream_loses_its_right_and_goes_on_where_it_was(spark: Any, world: World, tmp_path: Path) -> None:
    account = by_password(world, "SCRAM-SHA-512")
    topic = granted(world, account, world.topic(partitions=PARTITIONS), "read", "write")
    write(values(spark, 0, 30), world, account, topic)
    collected = Collected()
    stream = stream_of(spark, world, account, topic)
    with running(stream, tmp_path / "checkpoint", collected, processingTime="100 milliseconds") as query:
        collected.wait_for(30)
        assert world.forget(account.user) == 2
        with pytest.raises(Exception, match="TopicAuthorizationException"):
            query.awaitTermination(int(LONG))
    granted(world, account, topic, "read", "write")
    write(values(spark, 30, 60), world, account, topic)
    run_available(stream, tmp_path / "checkpoint", collected)
    assert collected.numbers == list(range(60))


@feature("spark", "throttled by a quota")
def test_a_batch_is_throttled(spark: Any, world: World) -> None:
    """Spark's producer waits for its quota, and loses nothing. A rate counts over ten seconds and those that pass."""
    account = by_password(world, "SCRAM-SHA-512")
    topic = granted(world, account, world.topic(), "read", "write")
    rate, waits = 10_000, 2.0
    padding = "=" * int(rate * (10 + waits) / RECORDS)
    world.limit(account.user, producer_byte_rate=rate)
    begin = time.monotonic()
    frame = values(spark, 0, RECORDS).selectExpr("key", f"concat(value, '{padding}') AS value").coalesce(1)
    write(frame, world, account.with_java({"batch.size": "4000"}), topic)
    assert time.monotonic() - begin >= waits
    world.limit(account.user, producer_byte_rate=None)
    rows = rows_of(spark, world, account, topic).selectExpr(
        "key", "trim(TRAILING '=' FROM CAST(value AS STRING)) AS value"
    )
    assert numbers(rows) == list(range(RECORDS))


class TokenAccount(Account):
    """A user whose connector is told of its trust alone."""

    @property
    def options(self) -> dict[str, str]:
        """As of any account, without login and protocol."""
        return {name: value for name, value in super().options.items() if name.startswith("kafka.ssl.")}


@feature("spark", "delegation tokens of its own provider, renewed and replaced under a stream")
def test_delegation_tokens(spark: Any, world: World, tmp_path: Path) -> None:
    """The connector logs in with the token alone: no user and no password is in the options."""
    account = by_password(world, "SCRAM-SHA-512")
    topic = granted(world, account, world.topic(partitions=PARTITIONS), "read", "write")
    by_token = TokenAccount(account.user, "SASL_SSL", account.security)
    bootstrap = world.servers.bootstrap("SASL_SSL")
    with TokenProvider(spark, "mine", bootstrap, account.security.java_properties()) as provider:
        first = provider.obtain()
        assert set(provider.tokens()) == {first}
        write(values(spark, 0, 30), world, by_token, topic)
        assert numbers(rows_of(spark, world, by_token, topic)) == list(range(30))
        collected = Collected()
        stream = stream_of(spark, world, by_token, topic)
        with running(stream, tmp_path / "checkpoint", collected, processingTime="100 milliseconds"):
            collected.wait_for(30)
            before = provider.tokens()[first]
            assert provider.renew(first, 3_600_000) < before, "renewal counts from now"
            write(values(spark, 30, 60), world, by_token, topic)
            collected.wait_for(60)
            second = provider.obtain()
            provider.expire(first)
            assert set(provider.tokens()) == {second}
            write(values(spark, 60, 90), world, by_token, topic)
            collected.wait_for(90)
        assert collected.numbers == list(range(90))
        provider.expire(second)
        with pytest.raises(Exception, match="SaslAuthenticationException"):
            rows_of(spark, world, by_token, topic).collect()
        assert provider.tokens() == {}


def test_the_example_of_a_secure_pipeline(
    spark: Any, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By users and rights that the command `kbroker` makes, on either broker."""
    password = world.servers.users["admin"]
    world.set_password("admin", password, "SCRAM-SHA-512")
    admin = replace(world.servers.sasl("SASL_SSL", "SCRAM-SHA-512", "admin", password), java={}).java_properties()
    file = tmp_path / "admin.properties"
    bootstrap = world.servers.bootstrap("SASL_SSL")
    file.write_text(format_properties({"bootstrap.servers": bootstrap, **admin}, "The administrator"))
    secure.main(["--admin", str(file), "--topic", world.name(), "--limit", "3000"])
    counts = flights.load(3000)["carrier"].value_counts()
    told = capsys.readouterr().out
    assert {line.split()[0]: int(line.split()[1].replace(",", "")) for line in told.splitlines()[3:-1]} == dict(counts)
    assert told.startswith("3,000 flights") and told.endswith("may not write flights: TopicAuthorizationException\n")
