"""Share groups (KIP-932) by the share consumers of Kafka, librdkafka and franz-go, on one node and on three."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.apache_kafka import SERVER_VERSION
from compat_tests.brokers import ApacheNodes, Broker, KbrokerNodes
from compat_tests.java_tools.driver import ToolDriver
from compat_tests.share_groups.conftest import BRIEF_LOCK_MS
from compat_tests.share_groups.members import Delivery, MemberError, ShareMembers
from compat_tests.share_groups.steps import accept, configure, make, read, write
from tests.patience import LONG

needs_tools = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("java", "mvn")), reason="needs Java and Maven"
)


def test_competing_workers_share_the_records(broker: Broker, members: ShareMembers, name: str) -> None:
    """Each record goes to one of two workers; together they have all, and a third finds nothing."""
    values: list[str] = []
    make(broker, name, partitions=3)
    done: dict[str, list[Delivery]] = {"one": [], "two": []}
    for member in done:
        members.join(member, name, name, max_poll_records="5", share_acquire_mode="record_limit")
        members.poll(member, 500)
    end = time.monotonic() + LONG
    # One worker may come so much later than the other that it finds nothing of the first jobs.
    while sum(map(len, done.values())) < len(values) or not all(done.values()):
        assert time.monotonic() < end, done
        if sum(map(len, done.values())) == len(values):
            more = [f"job {number}" for number in range(len(values), len(values) + 60)]
            values += more
            write(broker, name, *more, partitions=3)
        for member, got in done.items():
            new = members.poll(member, 500)
            accept(members, member, new)
            got += new
    assert sorted(each.value for got in done.values() for each in got) == sorted(values)
    assert {each.delivery_count for got in done.values() for each in got} == {1}
    members.join("three", name, name)
    assert members.poll("three", 2000) == []


def test_a_bad_record_does_not_block_others(broker: Broker, members: ShareMembers, name: str) -> None:
    """A released record comes again with its count; a rejected one does not, and an accepted one does not either."""
    make(broker, name, "good", "bad", "busy")
    members.join("one", name, name)
    good, bad, busy = read(members, "one", 3)
    assert [good.value, bad.value, busy.value] == ["good", "bad", "busy"]
    members.acknowledge("one", [good])
    members.acknowledge("one", [bad], "REJECT")
    members.acknowledge("one", [busy], "RELEASE")
    assert members.commit("one") == {f"{name}-0": ""}
    (again,) = read(members, "one", 1)
    assert (again.value, again.delivery_count) == ("busy", 2)
    accept(members, "one", [again])
    write(broker, name, "next")
    assert [each.value for each in read(members, "one", 1)] == ["next"]


def test_a_record_is_tried_no_more_often_than_the_limit(broker: Broker, members: ShareMembers, name: str) -> None:
    make(broker, name, "poison", delivery_count_limit="2")
    members.join("one", name, name)
    for attempt in (1, 2):
        (poison,) = read(members, "one", 1)
        assert (poison.value, poison.delivery_count) == ("poison", attempt)
        members.acknowledge("one", [poison], "RELEASE")
        members.commit("one")
    write(broker, name, "next")
    assert [each.value for each in read(members, "one", 1)] == ["next"]


def test_records_of_aborted_transactions_are_handed_to_nobody(broker: Broker, members: ShareMembers, name: str) -> None:
    """Where the group reads committed records alone; what was aborted is done with."""
    make(broker, name, isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(LONG)
    for value, end in (
        ("kept", producer.commit_transaction),
        ("aborted", producer.abort_transaction),
        ("kept, too", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        assert producer.flush(LONG) == 0
        end(LONG)
    members.join("one", name, name)
    assert [each.value for each in read(members, "one", 2)] == ["kept", "kept, too"]


def letters(broker: Broker, topic: str, partitions: int, count: int) -> list[Message]:
    """The dead letters of a topic, once there are so many."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "clerk", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    end = time.monotonic() + LONG
    while len({origin(each) for each in found}) < count:
        assert time.monotonic() < end, [origin(each) for each in found]
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            found.append(message)
    consumer.close()
    return found


def told_by(letter: Message) -> dict[str, bytes]:
    """The headers of a dead letter, by the ends of their names."""
    headers: Any = letter.headers() or ()
    return {name.removeprefix("__dlq.errors."): value for name, value in headers}


def origin(letter: Message) -> tuple[int, int]:
    """The partition and the offset of the record that was given up."""
    told = told_by(letter)
    return int(told["partition"]), int(told["offset"])


def test_a_rejected_record_becomes_a_dead_letter(broker: Broker, members: ShareMembers, name: str) -> None:
    """A record that is tried too often has a letter, too, in a topic that is made for them; each tells its reason."""
    dead: dict[str, Any] = {
        "errors_deadletterqueue_topic_name": f"dlq.{name}",
        "errors_deadletterqueue_copy_record_enable": "true",
    }
    make(broker, name, "good", "bad", "poison", delivery_count_limit="2", **dead)
    members.join("one", name, name)
    good, bad, poison = read(members, "one", 3)
    members.acknowledge("one", [good])
    members.acknowledge("one", [bad], "REJECT")
    members.acknowledge("one", [poison], "RELEASE")
    members.commit("one")
    (poison,) = read(members, "one", 1)
    members.acknowledge("one", [poison], "RELEASE")
    members.commit("one")
    found = letters(broker, f"dlq.{name}", 1, 2)
    told = {letter.value(): told_by(letter) for letter in found}
    assert {value: (each["topic"], each["group"]) for value, each in told.items()} == {
        b"bad": (name.encode(), name.encode()),
        b"poison": (name.encode(), name.encode()),
    }
    assert told[b"bad"]["message"] == b"Offset rejected by client."
    assert told[b"poison"]["message"] == b"Offset delivery count exceeded the threshold."
    assert told[b"poison"]["delivery.count"] == b"2"
    write(broker, name, "next")
    assert [each.value for each in read(members, "one", 1)] == ["next"]


def test_the_lock_of_a_worker_that_hangs_ends(broker: Broker, members: ShareMembers, name: str) -> None:
    """Another worker gets the record then, and the first one's word for it comes too late.

    A client may ask for more records before its worker does, and so be handed the record again when its lock ends.
    Where that happens the other worker gets it later, with a higher count.
    """
    # The first may be handed it again and again until the second lock is configured, ten times at most.
    make(broker, name, "slow", record_lock_duration_ms="3000", delivery_count_limit="10")
    members.join("one", name, name)
    (slow,) = read(members, "one", 1)
    configure(broker, name, record_lock_duration_ms="60000")  # the second lock holds, however slow the machine is
    members.join("two", name, name)
    (again,) = read(members, "two", 1)
    assert (again.offset, slow.delivery_count) == (slow.offset, 1) and again.delivery_count >= 2
    members.acknowledge("one", [slow])
    assert members.commit("one") == {f"{name}-0": "INVALID_RECORD_STATE"}
    accept(members, "two", [again])


def test_a_worker_that_needs_longer_renews(broker: Broker, members: ShareMembers, name: str) -> None:
    """While the lock is renewed nobody else has the record, however long that takes."""
    if not members.can_renew:
        pytest.skip("the client does not renew")
    lock_seconds = 20  # of which each renewal has all: members or the node may stand still for most of it
    make(broker, name, "long", record_lock_duration_ms=f"{lock_seconds}000")
    members.join("two", name, name)
    members.join("one", name, name)
    (long,) = read(members, "one", 1)
    end = time.monotonic() + lock_seconds + 0.5
    while time.monotonic() < end:
        members.acknowledge("one", [long], "RENEW")
        assert members.commit("one") == {f"{name}-0": ""}
        assert members.poll("two", 500) == []
        if members.polls_between_renewals:
            members.poll("one", 100)
    members.acknowledge("one", [long])
    assert members.commit("one") == {f"{name}-0": ""}
    assert members.poll("two", 300) == []


def test_records_of_a_worker_that_dies_go_to_others(broker: Broker, members: ShareMembers, name: str) -> None:
    make(broker, name, *"abc", record_lock_duration_ms=BRIEF_LOCK_MS)
    dying = type(members)(broker.bootstrap)
    try:
        dying.join("one", name, name)
        assert len(read(dying, "one", 3)) == 3
    finally:
        dying.end()
    members.join("two", name, name)
    assert [(each.value, each.delivery_count) for each in read(members, "two", 3)] == [("a", 2), ("b", 2), ("c", 2)]


@pytest.fixture(scope="module")
def tools(broker: Broker) -> Iterator[ToolDriver]:
    """The tools of the newest release."""
    driver = ToolDriver(broker.bootstrap, SERVER_VERSION)
    yield driver
    driver.close()


class ShareTool:
    """`kafka-share-groups` for one group."""

    def __init__(self, tools: ToolDriver, broker: Broker, group: str) -> None:
        self._tools = tools
        self._at = ("--bootstrap-server", broker.bootstrap)
        self._group = group

    def __call__(self, *arguments: str) -> list[list[str]]:
        """The words of each line of the output. The group is named unless all are asked for."""
        of_group = () if {"--list", "--all-groups"} & {*arguments} else ("--group", self._group)
        shown = self._tools.run("kafka-share-groups", *self._at, *of_group, *arguments)
        assert not shown.exit, shown
        return [line.split() for line in (shown.out + shown.err).splitlines()]

    def until(self, wanted: Callable[[list[str]], bool], *arguments: str) -> list[str]:
        """The first line that is as wanted, once there is one."""
        end = time.monotonic() + LONG
        while True:
            shown = self(*arguments)
            for line in shown:
                if wanted(line):
                    return line
            assert time.monotonic() < end, shown

    def reset(self, *how: str) -> list[list[str]]:
        """Topic, partition and offset of each partition that begins elsewhere, or would."""
        return [line[1:] for line in self("--reset-offsets", *how) if line[:1] == [self._group]]


@needs_tools
@pytest.mark.kafka
@pytest.mark.parametrize("members", ["java"], indirect=True)
def test_the_tool_for_share_groups(
    broker: Broker, members: ShareMembers, tools: ToolDriver, name: str, tmp_path: Path
) -> None:
    """All of its actions: a group is listed, described, begun elsewhere (from a file, too: KIP-1323), and deleted."""
    make(broker, name, *"abcde")
    shares = ShareTool(tools, broker, name)
    members.join("one", name, name)
    accept(members, "one", read(members, "one", 5)[:2])
    assert [name] in shares("--list")
    assert [name, "Stable"] in shares("--list", "--state", "stable")
    for more in ((), ("--verbose",)):
        state = shares.until(lambda line: line[:1] == [name], "--describe", "--state", *more)
        assert "Stable" in state and state[-1] == "1"
        member = shares.until(lambda line: line[:1] == [name], "--describe", "--members", *more)
        assert "one" in member and member[-1] == f"{name}:0"
        offsets = shares.until(lambda line: line[:3] == [name, name, "0"], "--describe", "--offsets", *more)
        assert offsets[-1] == "3", "of five, two are done with"
    refused = tools.run(
        *("kafka-share-groups", "--bootstrap-server", broker.bootstrap, "--group", name, "--reset-offsets"),
        *("--topic", name, "--to-earliest", "--execute"),
    )
    assert refused.exit and "is not empty" in refused.err
    members.leave("one")
    shares.until(lambda line: line[:1] == [name] and line[-2:] == ["Empty", "0"], "--describe", "--state")
    topic = ("--topic", name)
    assert shares.reset(*topic, "--to-latest", "--dry-run") == [[name, "0", "5"]]
    for how, offset in (
        (("--to-latest",), "5"),
        (("--to-earliest",), "0"),
        (("--to-datetime", "2000-01-01T00:00:00.000"), "0"),
        (("--to-offset", "2"), "2"),
    ):
        assert shares.reset(*topic, *how, "--execute") == [[name, "0", offset]]
        shares.until(lambda line, offset=offset: line[:4] == [name, name, "0", offset], "--describe")  # type: ignore[misc]
    exported = shares("--reset-offsets", "--all-topics", "--to-current", "--dry-run", "--export")
    assert [f"{name},0,2"] in exported
    file = tmp_path / "offsets.csv"
    file.write_text(f"{name},0,3\n")
    assert shares.reset("--from-file", str(file), "--execute") == [[name, "0", "3"]]
    members.join("two", name, name)
    assert [each.value for each in read(members, "two", 2)] == [*"de"]
    members.leave("two")
    shares.until(lambda line: line[:1] == [name] and line[-2:] == ["Empty", "0"], "--describe", "--state")
    assert [name, "Successful"] in shares("--delete-offsets", *topic)
    assert any("no offset information" in " ".join(line) for line in shares("--describe"))
    assert "successful." in shares("--delete")[0]
    assert [name] not in shares("--list")


@needs_tools
@pytest.mark.kafka
def test_the_console_share_consumer(broker: Broker, tools: ToolDriver, name: str) -> None:
    """It accepts what it prints, or releases or rejects it."""
    make(broker, name, *"abc")

    def shown(*more: str) -> list[str]:
        at = ("--bootstrap-server", broker.bootstrap, "--topic", name, "--group", name)
        told = tools.run("kafka-console-share-consumer", *at, "--timeout-ms", "120000", *more)
        assert not told.exit, told
        return told.out.split()

    delivery = ("--formatter-property", "print.delivery=true", "--formatter-property", "print.offset=true")
    assert shown("--max-messages", "3", "--release") == [*"abc"]
    found = shown("--max-messages", "3", "--reject", *delivery)
    assert [each for each in found if each in "abc"] == [*"abc"] and sum("2" in each for each in found) >= 3
    write(broker, name, "d")
    assert shown("--max-messages", "1") == ["d"]


def test_nothing_is_lost_when_nodes_are_killed(broker: Broker, members: ShareMembers, name: str) -> None:
    """A record that was accepted does not come again, and each of the others comes, whoever leads or coordinates.

    Members' sessions with the old leader end, and they open others (KAFKA-20736).
    """
    if not isinstance(broker, ApacheNodes | KbrokerNodes):
        pytest.skip("needs nodes that can be killed")
    values = [f"{number}" for number in range(90)]
    make(broker, name, *values, partitions=3, record_lock_duration_ms=BRIEF_LOCK_MS)
    members.join("one", name, name, max_poll_records="10", share_acquire_mode="record_limit")
    accepted: set[tuple[int, int]] = set()
    doubtful: set[tuple[int, int]] = set()

    def work(until: int) -> None:
        end = time.monotonic() + 2 * LONG
        while len(accepted | doubtful) < until:
            assert time.monotonic() < end, f"{len(accepted)} accepted, {len(doubtful)} in doubt, of {until}"
            got = members.poll("one", 500)
            places = {(each.partition, each.offset) for each in got}
            assert not places & accepted, "an accepted record comes again"
            if not got:
                continue
            members.acknowledge("one", got)
            try:
                outcome = members.commit("one")
            except MemberError:
                doubtful.update(places)
                continue
            for place in places:
                if outcome.get(f"{name}-{place[0]}") == "":
                    accepted.add(place)
                    doubtful.discard(place)
                else:
                    doubtful.add(place)

    work(30)
    for node in broker.nodes:
        node.kill()
        work(min(len(values), len(accepted | doubtful) + 10))
        node.start()
        broker.await_in_sync()
    work(len(values))
    end = time.monotonic() + LONG
    while doubtful - accepted and time.monotonic() < end:
        # What was in doubt was either kept or comes again.
        got = members.poll("one", 2000)
        assert not {(each.partition, each.offset) for each in got} & accepted, "an accepted record comes again"
        if not got:
            break
        accept(members, "one", got)
        accepted.update((each.partition, each.offset) for each in got)
    assert accepted | doubtful == {(number % 3, number // 3) for number in range(len(values))}


@pytest.mark.parametrize("members", ["java"], indirect=True)
def test_no_dead_letter_is_lost_when_nodes_are_killed(broker: Broker, members: ShareMembers, name: str) -> None:
    """Each record that is rejected is in the dead-letter topic, once or more, whichever node leads or coordinates."""
    if not isinstance(broker, ApacheNodes | KbrokerNodes):
        pytest.skip("needs nodes that can be killed")
    nodes = broker.nodes
    count, dlq = 30, f"dlq.{name}"
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    topic = NewTopic(dlq, 3, replication_factor=len(nodes), config=enabled)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([topic])[dlq].result()
    values = [f"{number}" for number in range(count)]
    brief: dict[str, Any] = {"record_lock_duration_ms": BRIEF_LOCK_MS, "delivery_count_limit": "10"}
    make(broker, name, *values, partitions=3, errors_deadletterqueue_topic_name=dlq, **brief)
    members.join("one", name, name, max_poll_records="5", share_acquire_mode="record_limit")

    def reject_some() -> None:
        got = members.poll("one", 500)
        if got:
            members.acknowledge("one", got, "REJECT")
            with contextlib.suppress(MemberError):
                members.commit("one")

    for node in nodes:
        reject_some()
        node.kill()
        reject_some()
        node.start()
        broker.await_in_sync()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "clerk", "enable.auto.commit": False})
    consumer.assign([TopicPartition(dlq, partition, 0) for partition in range(3)])
    found: set[tuple[int, int]] = set()
    end = time.monotonic() + 2 * LONG
    while len(found) < count:
        assert time.monotonic() < end, sorted(found)
        reject_some()
        while (message := consumer.poll(0.2)) is not None:
            if not message.error():
                found.add(origin(message))
    consumer.close()
    assert found == {(number % 3, number // 3) for number in range(count)}
