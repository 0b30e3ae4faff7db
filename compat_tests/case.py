"""Cases: functions of a :class:`Context`, registered with their row of the table and the abilities they need."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pytest

from compat_tests.client import Client, ClientError, Record
from kbroker.client import Client as BrokerClient
from kbroker.client import ClientError as BrokerClientError
from kbroker.client.connection import Connection
from kbroker.client.transactions import describe_transaction
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kbroker.wire.messages.metadata import MetadataResponseTopic
from tests.patience import LONG, SHORT, Late, eventually

GROUP_RESOURCE = 32
UNKNOWN_TOPIC_OR_PARTITION = 3

T = TypeVar("T")


class Broker(Protocol):
    """The broker under test as a case sees it."""

    bootstrap: str
    can_restart: bool

    def restart(self) -> None:
        """Stop it cleanly and start it again on the same address and data."""


@dataclass
class Context:
    """The surroundings of a case: the client under test, the broker, and a second client that looks from outside."""

    client: Client
    broker: Broker
    peer: Client
    passing: list[str] = field(default_factory=list)
    """Topics that are deleted after the case: of many partitions, which a broker writes out one by one as it stops."""

    def clean_up(self) -> None:
        """Delete the topics that do not stay."""
        for name in self.passing:
            try:
                self.peer.delete_topic(name)
            except ClientError as error:
                if error.name != "_TRANSPORT":  # the node that was asked has died
                    raise

    def name(self, hint: str = "topic") -> str:
        """A topic name that no other case uses."""
        return f"compat-{hint}-{uuid.uuid4().hex[:10]}"

    @property
    def reader(self) -> Client:
        """The client under test, or the peer where the client cannot read (kafkajs reads only through groups)."""
        return self.client if "read" in self.client.features else self.peer

    @property
    def replicas(self) -> int:
        """Replicas of a topic that the client under test makes itself, as not every client can leave it to the broker.

        With one, nobody could use it while its node is down; and as kafkajs's admin asks for the metadata of all
        topics there are, it could then do nothing at all.
        """
        return min(3, len(self.broker.bootstrap.split(",")))

    def topic(self, hint: str = "topic", partitions: int = 1, replication_factor: int = -1, **configs: str) -> str:
        """A fresh topic, made by the peer so that the case tests one thing; ready to be written.

        It has as many replicas as the broker gives where nobody says otherwise.
        """
        name = self.name(hint)
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        try:
            self.peer.create_topic(name, partitions, settings, replication_factor)
        except ClientError as error:
            if error.name != "_TRANSPORT":
                raise
            # The node that was asked has died, and librdkafka asks no other; it may have done it, or not.
            try:
                self.peer.create_topic(name, partitions, settings, replication_factor)
            except ClientError as again:
                if again.name != "TOPIC_ALREADY_EXISTS":
                    raise
        self.await_topic(name)
        return name

    def await_topic(self, name: str) -> None:
        """Until all brokers that run know a topic that was just created: that takes a moment, as the javadoc of Kafka's
        Admin says, and clients ask whichever they like."""
        eventually(lambda: name in self.peer.list_topics(), f"{name} in the topic list")
        await_everywhere(self.broker.bootstrap, name)


def await_everywhere(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Wait until each of several brokers knows a topic, with so many partitions or more.

    One alone knows it when it has answered.
    """

    def knows(found: MetadataResponseTopic) -> bool:
        led = all(partition.leader_id >= 0 for partition in found.partitions)
        return not found.error_code and led and len(found.partitions) >= partitions

    _await_each(bootstrap, topic, knows, "there")


def await_gone(bootstrap: str, topic: str) -> None:
    """Wait until no broker knows a topic any more."""
    _await_each(bootstrap, topic, lambda found: found.error_code == UNKNOWN_TOPIC_OR_PARTITION, "gone")


def _await_each(bootstrap: str, topic: str, wanted: Callable[[MetadataResponseTopic], bool], what: str) -> None:
    def is_so(address: str) -> bool:
        try:
            with BrokerClient(address, timeout=SHORT) as client:
                [found] = client.refresh([topic])
        except BrokerClientError:
            return True  # it does not run
        return wanted(found)

    addresses = bootstrap.split(",")
    for address in addresses if len(addresses) > 1 else ():
        eventually(lambda address=address: is_so(address), f"{topic} to be {what} at {address}")  # type: ignore[misc]


def await_group_configs(bootstrap: str, group: str, configs: Mapping[str, str]) -> None:
    """Wait until each broker tells these configs of a group: one that leads or coordinates may be the last to know."""
    for address in bootstrap.split(","):
        eventually(
            lambda address=address: configs.items() <= _group_configs(address, group).items(),  # type: ignore[misc]
            f"the configs of {group} at {address}",
        )


def _group_configs(address: str, group: str) -> dict[str, str | None]:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + SHORT
    resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None)
    connection = Connection(host, int(port), client_id="compat", deadline=deadline)
    try:
        [result] = connection.request(DescribeConfigsRequest(resources=[resource]), deadline).results
    finally:
        connection.close()
    return {each.name: each.value for each in result.configs}


def await_ended(bootstrap: str, transactional_id: str) -> None:
    """Wait until no transaction of the id is about to end: a commit is answered before its markers are everywhere."""

    def is_ended() -> bool:
        with BrokerClient(bootstrap, timeout=SHORT) as client:
            return not describe_transaction(client, transactional_id).state.startswith("Prepare")

    eventually(is_ended, f"the transaction of {transactional_id} to be ended")


def at_once(action: Callable[[], T], seconds: float, what: str) -> T:
    """The result of an `action` that takes less than so many seconds; on a machine that is busy, of three tries.

    For actions that each take longer where a broker waits for what it should not.
    """
    for _ in range(3):
        begin = time.monotonic()
        result = action()
        took = time.monotonic() - begin
        if took < seconds:
            return result
    raise Late(f"took {took:.1f} s the last of three times: {what}")


def settled(action: Callable[[], T], timeout: float = LONG) -> T:
    """Repeat `action` until it succeeds, and return its result: a client that was cut off may need a few tries."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        try:
            return action()
        except (Exception, pytest.fail.Exception):
            if time.monotonic() > deadline:
                raise
        pause.wait(0.1)


@dataclass(frozen=True)
class Case:
    """One case: `name` is its test id, `group` and `title` its row."""

    name: str
    group: str
    title: str
    needs: frozenset[str]
    run: Callable[[Context], None]

    def missing(self, client: type[Client] | Client) -> list[str]:
        """The abilities that `client` lacks for this case."""
        return sorted(self.needs - client.features)


CASES: list[Case] = []


def case(
    group: str, title: str, needs: Iterable[str] = ()
) -> Callable[[Callable[[Context], None]], Callable[[Context], None]]:
    """Register a case."""

    def register(function: Callable[[Context], None]) -> Callable[[Context], None]:
        CASES.append(Case(function.__name__, group, title, frozenset(needs), function))
        return function

    return register


def refused(name: str | tuple[str, ...], action: Callable[[], object]) -> ClientError:
    """`action` must be refused with Kafka's error `name`."""
    names = (name,) if isinstance(name, str) else name
    with pytest.raises(ClientError) as raised:
        action()
    assert raised.value.name in names, f"expected {name}, got {raised.value}"
    return raised.value


def numbered(count: int, size: int = 20, **fields: object) -> list[Record]:
    """`count` records with keys and values that tell their number."""
    return [
        Record(value=f"value-{index}-".encode().ljust(size, b"x"), key=f"key-{index}".encode(), **fields)  # type: ignore[arg-type]
        for index in range(count)
    ]
