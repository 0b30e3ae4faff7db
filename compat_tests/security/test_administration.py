"""ACLs, users and authorized operations, by the admin client of every library that has them and by Kafka's tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from confluent_kafka import TopicCollection

from compat_tests.apache_kafka import tool
from compat_tests.client import Record
from compat_tests.client_security import Security
from compat_tests.line_driver import LineDriverClient
from compat_tests.security import own_commands
from compat_tests.security.kept import kept_producer
from compat_tests.security.world import CLIENTS, World, feature, logs_in, refused
from tests.patience import LONG, eventually

_MECHANISM = "SCRAM-SHA-512"
_NUMBERED = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms as the protocol numbers them."""

Grants = tuple[Callable[[], None], Callable[[], int], Callable[[], int]]
"""Create one ACL, describe it, and delete it; the last two say how many they found."""


def _line_driver(world: World, name: str) -> LineDriverClient:
    client = world.client(name, "SASL_SSL", world.servers.plain("admin", "SASL_SSL"))
    assert isinstance(client, LineDriverClient)
    return client


def _java(world: World, user: str, topic: str) -> Grants:
    driver = _line_driver(world, "java")
    acl = {"type": "TOPIC", "name": topic, "pattern": "LITERAL", "principal": f"User:{user}", "host": "*"}
    acl |= {"operation": "WRITE", "permission": "ALLOW"}
    return (
        lambda: driver.call("create_acl", acl=acl),
        lambda: int(driver.call("describe_acls", acl=acl)),
        lambda: int(driver.call("delete_acls", acl=acl)),
    )


def _kafkajs(world: World, user: str, topic: str) -> Grants:
    driver = _line_driver(world, "kafkajs")
    acl = {"resourceType": 2, "resourceName": topic, "resourcePatternType": 3, "principal": f"User:{user}"}
    acl |= {"host": "*", "operation": 4, "permissionType": 3}
    return (
        lambda: driver.call("create_acl", acl=acl),
        lambda: len(driver.call("describe_acls", filter=acl)),
        lambda: int(driver.call("delete_acls", filter=acl)),
    )


def _confluent_kafka(world: World, user: str, topic: str) -> Grants:
    from confluent_kafka.admin import AclBindingFilter

    binding = world._binding(user, "topic", topic, "write", False, "ALLOW")
    same = AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )

    def delete() -> int:
        (future,) = world.admin.delete_acls([same]).values()
        return len(future.result(LONG))

    return (
        lambda: world.allow(user, "topic", topic, "write"),
        lambda: len(world.admin.describe_acls(same).result(LONG)),
        delete,
    )


def _kafka_python(world: World, user: str, topic: str) -> Grants:
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        KafkaAdminClient,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
    )
    from kafka.admin import ACLResourcePatternType as PatternType

    def admin() -> KafkaAdminClient:
        security = world.servers.plain("admin", "SASL_SSL").kafka_python()
        return KafkaAdminClient(bootstrap_servers=world.servers.bootstrap("SASL_SSL"), **security)

    common: dict[str, Any] = {"principal": f"User:{user}", "host": "*", "operation": ACLOperation.WRITE}
    common["permission_type"] = ACLPermissionType.ALLOW
    acl = ACL(resource_pattern=ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL), **common)
    same = ACLFilter(resource_pattern=ResourcePatternFilter(ResourceType.TOPIC, topic, PatternType.LITERAL), **common)

    def with_admin(call: Callable[[KafkaAdminClient], Any]) -> Any:
        made = admin()
        try:
            return call(made)
        finally:
            made.close()

    def create() -> None:
        told = with_admin(lambda made: made.create_acls([acl]))
        assert len(told["succeeded"]) == 1, told

    def describe() -> int:
        acls, _ = with_admin(lambda made: made.describe_acls(same))
        return len(acls)

    def delete() -> int:
        ((_, matching, _),) = with_admin(lambda made: made.delete_acls([same]))
        return len(matching)

    return create, describe, delete


def _kafka_acls(world: World, user: str, topic: str) -> Grants:
    where = ("--bootstrap-server", world.servers.bootstrap("SASL_SSL"), "--command-config", str(_config(world)))
    what = ("--topic", topic, "--allow-principal", f"User:{user}", "--operation", "Write")

    def describe() -> int:
        told = tool("kafka-acls", *where, "--list", "--topic", topic, check=True).stdout
        return told.count(f"principal=User:{user}, host=*, operation=WRITE, permissionType=ALLOW")

    def delete() -> int:
        tool("kafka-acls", *where, "--remove", "--force", *what, check=True)
        return 1

    return lambda: void(tool("kafka-acls", *where, "--add", *what, check=True)), describe, delete


def void(_: object) -> None:
    """Nothing, of a call whose answer is not asked for."""


def _config(world: World, security: Security | None = None) -> Path:
    """A client.properties for Kafka's tools, the admin's if nothing else is said."""
    found = (security or world.servers.plain("admin", "SASL_SSL")).java_properties()
    path = world.servers.directory / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
    return path


_GRANTS: dict[str, Callable[[World, str, str], Grants]] = {
    "java": _java,
    "kafkajs": _kafkajs,
    "confluent-kafka": _confluent_kafka,
    "kafka-python": _kafka_python,
    "kafka-acls": _kafka_acls,
    "kbroker acl": lambda world, user, topic: own_commands.grants(
        _config(world), world.servers.bootstrap("SASL_SSL"), user, topic
    ),
}


def _by(names: Iterable[str], title: str) -> list[ParameterSet]:
    return [pytest.param(name, marks=[feature(name, title)] if name in CLIENTS else []) for name in names]


@pytest.mark.parametrize("by", _by(_GRANTS, "ACLs by its admin client"))
def test_acl_is_made_told_and_deleted(world: World, by: str) -> None:
    user, password = world.user()
    topic = world.topic()
    create, describe, delete = _GRANTS[by](world, user, topic)
    client = world.client("confluent-kafka", "SASL_SSL", _scram(world, user, password, "SCRAM-SHA-256"))
    assert topic not in client.list_topics()
    create()
    eventually(lambda: topic in client.list_topics())
    assert describe() == 1
    assert delete() == 1
    eventually(lambda: topic not in client.list_topics())
    world.done_with(client)


def _scram(world: World, user: str, password: str, mechanism: str = _MECHANISM) -> Security:
    return world.servers.sasl("SASL_SSL", mechanism, user, password)


Keys = tuple[Callable[[str | None], None], Callable[[], list[str]]]
"""Set the password or, with None, delete it; the mechanisms and iterations that are told."""


def _keys_java(world: World, user: str) -> Keys:
    driver = _line_driver(world, "java")
    return (
        lambda password: void(driver.call("alter_scram", user=user, mechanism=_MECHANISM, password=password)),
        lambda: list(driver.call("describe_scram", user=user)),
    )


def _keys_confluent_kafka(world: World, user: str) -> Keys:
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)

    def change(password: str | None) -> None:
        one = (
            UserScramCredentialDeletion(user, info.mechanism)
            if password is None
            else UserScramCredentialUpsertion(user, info, password.encode())
        )
        (future,) = world.admin.alter_user_scram_credentials([one]).values()
        future.result(LONG)

    def describe() -> list[str]:
        futures = world.admin.describe_user_scram_credentials([user])
        assert isinstance(futures, dict)
        told = futures[user].result(LONG)
        return [f"{each.mechanism.name.replace('_', '-')}={each.iterations}" for each in told.scram_credential_infos]

    return change, describe


def _keys_kafka_python(world: World, user: str) -> Keys:
    from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion

    def with_admin(call: Callable[[KafkaAdminClient], Any]) -> Any:
        security = world.servers.plain("admin", "SASL_SSL").kafka_python()
        made = KafkaAdminClient(bootstrap_servers=world.servers.bootstrap("SASL_SSL"), **security)
        try:
            return call(made)
        finally:
            made.close()

    mechanism = ScramMechanism.SCRAM_SHA_512

    def change(password: str | None) -> None:
        one = (
            UserScramCredentialDeletion(user, mechanism)
            if password is None
            else UserScramCredentialUpsertion(user, mechanism, password, iterations=4096)
        )
        with_admin(lambda made: made.alter_user_scram_credentials([one]))

    def describe() -> list[str]:
        told = with_admin(lambda made: made.describe_user_scram_credentials([user]))
        infos = told[user]["credential_infos"]
        return [f"{_NUMBERED[int(each['mechanism'])]}={each['iterations']}" for each in infos]

    return change, describe


def _keys_kafka_configs(world: World, user: str) -> Keys:
    where = ("--bootstrap-server", world.servers.bootstrap("SASL_SSL"), "--command-config", str(_config(world)))
    whom = ("--entity-type", "users", "--entity-name", user)

    def change(password: str | None) -> None:
        what = (
            ("--delete-config", _MECHANISM)
            if password is None
            else ("--add-config", f"{_MECHANISM}=[iterations=4096,password={password}]")
        )
        tool("kafka-configs", *where, "--alter", *whom, *what, check=True)

    def describe() -> list[str]:
        done = tool("kafka-configs", *where, "--describe", *whom)
        if "does not support DESCRIBE_CLIENT_QUOTAS" in done.stdout + done.stderr:
            # The tool asks for the user's quotas first, and gives up where a broker has none at all.
            return _keys_confluent_kafka(world, user)[1]()
        told = done.stdout
        assert "salt" not in told and "key" not in told
        return [f"{_MECHANISM}=4096"] if f"{_MECHANISM}=iterations=4096" in told else []

    return change, describe


_KEYS: dict[str, Callable[[World, str], Keys]] = {
    "java": _keys_java,
    "confluent-kafka": _keys_confluent_kafka,
    "kafka-python": _keys_kafka_python,
    "kafka-configs": _keys_kafka_configs,
    "kbroker user": lambda world, user: own_commands.keys(
        _config(world), world.servers.bootstrap("SASL_SSL"), user, _MECHANISM
    ),
}


@pytest.mark.parametrize("by", _by(_KEYS, "SCRAM users by its admin client"))
def test_user_comes_changes_and_goes(world: World, by: str) -> None:
    user = world.name("user")
    change, describe = _KEYS[by](world, user)
    address = world.servers.bootstrap("SASL_SSL")
    first, second = _scram(world, user, "first-password"), _scram(world, user, "second-password")
    assert not logs_in(address, first)
    change("first-password")
    eventually(lambda: logs_in(address, first))
    assert describe() == [f"{_MECHANISM}=4096"]
    topic = world.topic(world.open_name())
    producer = kept_producer(world, "confluent-kafka", "SASL_SSL", first)
    producer.send(topic)
    if by != "kafka-configs":  # a tool takes seconds, and it is the same request
        change("second-password")
        eventually(lambda: logs_in(address, second))
        assert not logs_in(address, first)
        producer.send(topic)  # who is connected stays so
    change(None)
    eventually(lambda: not logs_in(address, second) and not logs_in(address, first))
    producer.send(topic)
    producer.close()


def test_authorized_operations(world: World) -> None:
    user, password = world.user()
    topic, group = world.topic(), world.name("group")
    world.peer.produce(topic, [Record(b"value")])
    world.peer.consume(topic, group, 1)
    world.allow(user, "topic", topic, "read", "alter_configs")
    world.allow(user, "group", group, "delete")
    world.deny(user, "topic", topic, "delete")
    own = world.client("confluent-kafka", "SASL_SSL", _scram(world, user, password, "SCRAM-SHA-256"))
    eventually(lambda: topic in own.list_topics())
    world.done_with(own)
    java = world.client("java", "SASL_SSL", _scram(world, user, password, "SCRAM-SHA-256"))
    assert isinstance(java, LineDriverClient)
    assert java.call("authorized_operations", topic=topic, group=group) == {
        "topic": ["ALTER_CONFIGS", "DESCRIBE", "DESCRIBE_CONFIGS", "READ"],
        "cluster": ["DESCRIBE"],
        "group": ["DELETE", "DESCRIBE"],
    }
    # Others may have more, and librdkafka asks in its own way.
    (described,) = world.admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True).values()
    told = {each.name for each in described.result(LONG).authorized_operations}
    assert told == {"ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"}
    world.forget(user)


def test_who_may_not_administer(world: World) -> None:
    user, password = world.user()
    java = world.client("java", "SASL_SSL", _scram(world, user, password, "SCRAM-SHA-256"))
    assert isinstance(java, LineDriverClient)
    acl = {"type": "TOPIC", "name": "any", "pattern": "LITERAL", "principal": f"User:{user}", "host": "*"}
    acl |= {"operation": "ALL", "permission": "ALLOW"}
    denied = "CLUSTER_AUTHORIZATION_FAILED"
    assert refused(lambda: java.call("create_acl", acl=acl)) == denied
    assert refused(lambda: java.call("delete_acls", acl=acl)) == denied
    # Whoever may describe the cluster may read its ACLs and its users' mechanisms, and everyone may here.
    assert java.call("describe_acls", acl=acl) == 0
    change: dict[str, Any] = {"user": "admin", "mechanism": _MECHANISM, "password": "mine-now"}
    assert refused(lambda: java.call("alter_scram", **change)) == denied
    assert not logs_in(world.servers.bootstrap("SASL_SSL"), _scram(world, "admin", "mine-now"))


def test_tools_with_a_command_config(world: World) -> None:
    topic = world.topic(world.open_name())
    config = str(_config(world, world.servers.tls(world.servers.alice)))
    where = ("--bootstrap-server", world.servers.bootstrap("MTLS"))
    tool(
        "kafka-console-producer",
        *where,
        *("--topic", topic, "--command-config", config),
        stdin="one\ntwo\n",
        check=True,
    )
    read = tool(
        "kafka-console-consumer",
        *where,
        *("--topic", topic, "--command-config", config, "--from-beginning", "--max-messages", "2"),
        *("--group", world.open_name("group")),
        check=True,
    )
    assert read.stdout == "one\ntwo\n"
