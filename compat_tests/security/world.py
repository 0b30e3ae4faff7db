"""A test's hands on secure nodes from outside, as the user admin, and the clients that are under test."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.client import Client, ClientError
from compat_tests.client_security import Security
from compat_tests.clients import client_class, skip_without, unavailable
from compat_tests.confluent_kafka.client import ConfluentKafkaClient
from compat_tests.java.client import JavaClient
from compat_tests.line_driver import LineDriverClient
from compat_tests.security.certificates import STORE_PASSWORD
from compat_tests.security.servers import SecureServers
from compat_tests.security.tokens import jvm_option
from kbroker.client import Client as OwnClient
from kbroker.client.properties import ClientProperties
from kbroker.client.quotas import alter_quotas, describe_quotas
from kbroker.client.security import security_of
from tests.patience import LONG, SHORT, eventually
from tests.secret_forms import tokens_in

T = TypeVar("T")

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka", "kcat", "java", "kafkajs")


def feature(client: str, title: str) -> pytest.MarkDecorator:
    """The client's cell in the table of docs/compatibility.md."""
    return pytest.mark.feature(client, "security", title)


_SHARED = ("java", "kafkajs")
"""Clients in other languages: one process stands for all of them."""

OPEN = "open-"
"""Everyone may do everything with topics, groups and transactional ids whose names begin with this."""

_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def _sends_nonce_twice() -> dict[str, str]:
    """Clients of librdkafka before 2.8, with the reason: the nonce of their last SCRAM message is not the server's.

    Brokers that check it (CVE-2024-56128) refuse them.
    """
    version = client_class("kcat").version if unavailable("kcat") is None else ""
    found = re.search(r"librdkafka (\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) >= (2, 8):
        return {}
    return {"kcat": f"{version} sends a wrong nonce in SCRAM"}


SENDS_NONCE_TWICE = _sends_nonce_twice()


SECRET = "secret-of-a-user-"
"""The beginning of the password of each user that a test makes."""


class World:
    """Secure nodes with their administrator."""

    def __init__(self, servers: SecureServers) -> None:
        self.servers = servers
        self._drivers: dict[str, LineDriverClient] = {}
        self.token_secrets: list[str] = []
        """Those of the delegation tokens that tests have made."""
        admin = servers.plain("admin", "SASL_SSL")
        self.admin = AdminClient(
            {"bootstrap.servers": servers.bootstrap("SASL_SSL"), "log_level": 0, **admin.librdkafka()}
        )
        self.peer = ConfluentKafkaClient(servers.bootstrap("SASL_SSL"), admin)
        for kind in ("topic", "group", "transactional_id"):
            self.allow("*", kind, OPEN, "all", prefixed=True)
        self.allow("*", "cluster", "kafka-cluster", "describe")

    def close(self) -> None:
        """End the processes of clients."""
        for driver in self._drivers.values():
            driver.close()

    def told_secrets(self) -> list[str]:
        """The passwords, stores' and users', that the nodes' logs hold; only their beginnings."""
        log = self.servers.log()
        secrets = [
            *self.servers.users.passwords.values(),
            *self.token_secrets,
            *self.servers.provider.clients.values(),
            self.servers.token_key,
            STORE_PASSWORD,
            SECRET,
            "PRIVATE KEY",
        ]
        if "apache" not in self.servers.kinds:
            secrets += tokens_in(log)  # Apache Kafka writes those that it refuses into its log
        return [secret[:12] for secret in secrets if secret in log]

    # clients

    def client(self, name: str, listener: str, security: Security) -> Client:
        """A client under test; those in other languages share a process. Skips where the machine lacks it."""
        skip_without(name)
        bootstrap = self.servers.bootstrap(listener)
        if name not in _SHARED:
            return client_class(name)(bootstrap, security)  # type: ignore[call-arg]
        driver = self._drivers.get(name)
        if driver is None:
            driver = self._drivers[name] = _driver(name, bootstrap, security)
        settings = security.java_properties() if name == "java" else security.kafkajs()
        return driver.secured(bootstrap, settings)

    def done_with(self, client: Client) -> None:
        """Close a client that does not share its process."""
        if client.name not in _SHARED:
            client.close()

    def name(self, hint: str = "topic") -> str:
        """A name that no other test uses, and that begins with what is open to nobody."""
        return f"shut-{hint}-{uuid.uuid4().hex[:10]}"

    def open_name(self, hint: str = "topic") -> str:
        """A name that no other test uses, of what is open to everyone."""
        return f"{OPEN}{hint}-{uuid.uuid4().hex[:10]}"

    def topic(self, name: str | None = None, partitions: int = 1) -> str:
        """A fresh topic, made by the admin."""
        name = name or self.name()
        self.peer.create_topic(name, partitions, {}, -1)
        self.await_topic(name)
        return name

    def await_topic(self, name: str) -> None:
        """Wait until each of several nodes tells the admin of a topic."""
        addresses = self.servers.bootstrap("SASL_SSL").split(",")
        for address in addresses if len(addresses) > 1 else ():  # one alone knows it when it has answered
            eventually(partial(self.sees, address, self.servers.plain("admin", "SASL_SSL"), name))

    @staticmethod
    def sees(address: str, security: Security, topic: str) -> bool:
        """Whether the node at `address` tells someone of a topic."""
        client = ConfluentKafkaClient(address, security)
        try:
            return topic in client.list_topics()
        finally:
            client.close()

    @staticmethod
    def misses(address: str, security: Security, topic: str) -> bool:
        """Whether the node at `address` lets someone in, and tells nothing of a topic."""
        return not World.sees(address, security, topic)

    # rights

    @staticmethod
    def _binding(
        user: str, kind: str, name: str, operation: str, prefixed: bool, permission: str, host: str = "*"
    ) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        resource = {"cluster": "BROKER", "transactional_id": "TRANSACTIONAL_ID"}.get(kind, kind.upper())
        return AclBinding(
            ResourceType[resource],
            name,
            pattern,
            f"User:{user}",
            host,
            AclOperation[operation.upper()],
            AclPermissionType[permission],
        )

    def allow(self, user: str, kind: str, name: str, *operations: str, prefixed: bool = False, host: str = "*") -> None:
        """Grant `operations` on a resource."""
        bindings = [self._binding(user, kind, name, each, prefixed, "ALLOW", host) for each in operations]
        for future in self.admin.create_acls(bindings).values():
            future.result(LONG)

    def deny(self, user: str, kind: str, name: str, *operations: str, host: str = "*") -> None:
        """Deny `operations` on a resource, whatever else allows them."""
        bindings = [self._binding(user, kind, name, each, False, "DENY", host) for each in operations]
        for future in self.admin.create_acls(bindings).values():
            future.result(LONG)

    def forget(self, user: str, permission: str = "ANY") -> int:
        """Delete all ACLs of `user`, or those that DENY or ALLOW; how many there were."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any name; its stubs ask for one
            ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType[permission],
        )
        (future,) = self.admin.delete_acls([every]).values()
        return len(future.result(LONG))

    # quotas

    def limit(self, user: str, **rates: float | None) -> None:
        """Set quotas of `user`, such as ``producer_byte_rate``; None takes one away."""
        with self._own_client() as client:
            alter_quotas(client, {"user": user}, rates)
        given = {key: rate for key, rate in rates.items() if rate is not None}
        eventually(lambda: {key: rate for key, rate in self.limits(user).items() if key in rates} == given)

    def limits(self, user: str) -> dict[str, float]:
        """The quotas of `user`."""
        with self._own_client() as client:
            found = [each for each in describe_quotas(client, {"user": user}) if each.entity == {"user": user}]
        return found[0].values if found else {}

    def _own_client(self) -> OwnClient:
        """The client of kbroker's commands: confluent-kafka has no quotas."""
        return own_client(self.servers.bootstrap("SASL_SSL"), self.servers.plain("admin", "SASL_SSL"))

    # users

    def user(self, hint: str = "user", mechanism: str = "SCRAM-SHA-256") -> tuple[str, str]:
        """A fresh SCRAM user and the password; every node knows it."""
        name, password = f"{hint}-{uuid.uuid4().hex[:8]}", f"{SECRET}{uuid.uuid4().hex}"
        self.set_password(name, password, mechanism)
        return name, password

    def set_password(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        """Give `user` a password, and wait until nodes know it."""
        self.put_password(user, password, mechanism)
        security = self.servers.sasl("SASL_PLAINTEXT", mechanism, user, password)
        for address in self.servers.bootstrap("SASL_PLAINTEXT").split(","):
            eventually(partial(logs_in, address, security))

    def put_password(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        """Give `user` a password."""
        info = ScramCredentialInfo(_SCRAM[mechanism], 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(LONG)


def _driver(name: str, bootstrap: str, security: Security) -> LineDriverClient:
    if name == "java":
        return JavaClient(bootstrap, security, [jvm_option()])
    made = client_class(name)(bootstrap, security)  # type: ignore[call-arg]
    assert isinstance(made, LineDriverClient)
    return made


@contextlib.contextmanager
def running_world(servers: SecureServers, *, checks_log: bool = True) -> Iterator[World]:
    """The world of these servers, from their start to their end; afterwards no secret is in their logs."""
    try:
        servers.start()
        world = World(servers)
        yield world
        world.close()
        assert not checks_log or not world.told_secrets(), "secrets are in the log of a node"
    finally:
        servers.stop()


def own_client(address: str, security: Security) -> OwnClient:
    """The client of kbroker's commands."""
    return OwnClient(address, security=security_of(ClientProperties(security.java_properties())), timeout=SHORT)


def logs_in(address: str, security: Security) -> bool:
    """Whether the node at `address` lets librdkafka in."""
    errors: list[object] = []
    configs = {"bootstrap.servers": address, "log_level": 0, **security.librdkafka(), "error_cb": errors.append}
    admin = AdminClient(configs)
    deadline = time.monotonic() + SHORT
    while time.monotonic() < deadline:
        try:
            admin.list_topics(timeout=0.2)
        except KafkaException:
            admin.poll(0)
            if errors:
                return False
        else:
            return True
    return False


def all_in_sync(admin: AdminClient, topic: str) -> bool:
    """Whether each partition of `topic` has three replicas in sync; False where the node has not heard of it yet."""
    (future,) = admin.describe_topics(TopicCollection([topic])).values()
    try:
        partitions = future.result(SHORT).partitions
    except KafkaException:
        return False
    return all(len(each.isr) == 3 for each in partitions)


# a bounded poll of another process


def refused(call: Callable[[], object]) -> str:
    """The name of the error that `call` ends with, "" if it succeeds."""
    try:
        call()
    except ClientError as error:
        return error.name
    return ""
