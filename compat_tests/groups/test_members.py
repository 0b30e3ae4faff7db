"""A suite for the members of every client, with the classic protocol and with KIP-848's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.brokers import Broker
from compat_tests.groups import hosts
from compat_tests.groups.conftest import UNHURRIED_MS, Joining, Restart, Topics
from compat_tests.groups.hosts import KINDS, Kind, Member, await_that, never_two_owners, read_counts


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest, has_modern_groups: bool) -> Kind:
    """The client under test."""
    found = KINDS[request.param]
    reason = hosts.unavailable(found)
    if reason is None and found.is_modern and not has_modern_groups:
        reason = "the broker does not serve ConsumerGroupHeartbeat"
    if reason:
        pytest.skip(reason)
    return found


def need(kind: Kind, feature: str) -> None:
    """Skip the test where the client has no such thing, in its own words."""
    if feature in kind.lacks:
        pytest.skip(kind.lacks[feature])


def share(members: list[Member], partitions: int = 4) -> bool:
    """Whether all partitions are divided among the members, no member has two more than another."""
    owned = [member.partitions() for member in members]
    return (
        sum(map(len, owned)) == partitions
        and set().union(*owned) == set(range(partitions))
        and max(map(len, owned)) - min(map(len, owned)) <= 1
    )


@pytest.mark.nodes(3)
def test_rebalance_on_join_and_leave(kind: Kind, topic: str, topics: Topics, join: Joining) -> None:
    one = join(kind, topic, auto_commit=True)
    await_that(lambda: share([one]) and len(one.seen) == 20, "all to the only member", [one])
    two = join(kind, topic, auto_commit=True)
    await_that(lambda: share([one, two]), "two partitions for each", [one, two])
    topics.write(topic)
    three = join(kind, topic, auto_commit=True)
    everyone = [one, two, three]
    await_that(lambda: share(everyone), "one or two partitions for each", everyone)
    topics.write(topic)
    await_that(lambda: set(read_counts(everyone)) == topics.records(topic), "every record read", everyone)
    two.close()
    await_that(lambda: share([one, three]), "two for each that stays", everyone)
    topics.write(topic)
    one.close()
    await_that(lambda: share([three]), "all to the last", everyone)
    await_that(lambda: set(read_counts(everyone)) == topics.records(topic), "every record read", everyone)
    never_two_owners(everyone)
    twice = {record: count for record, count in read_counts(everyone).items() if count > 1}
    assert not twice, f"members commit before they give partitions away, so no record is read twice: {twice} {everyone}"


def test_more_members_than_partitions(kind: Kind, topics: Topics, join: Joining) -> None:
    topic = topics.make(partitions=2)
    members = [join(kind, topic) for _ in range(3)]
    await_that(lambda: share(members, 2), "one partition each for two of three", members)
    idle = next(member for member in members if not member.owned)
    next(member for member in members if member.owned).close()
    stay = [member for member in members if member.ended_at is None]
    await_that(lambda: share(stay, 2) and len(idle.owned) == 1, "the idle one takes over", stay)
    never_two_owners(members)


def test_members_that_start_together(
    kind: Kind, broker: Broker, topics: Topics, unhurried_group: str, join: Joining
) -> None:
    if not kind.is_modern:
        pytest.skip("classic members start together in one rebalance")
    assert join.group == unhurried_group
    topic = topics.make(partitions=20)
    with ThreadPoolExecutor(10) as pool:
        members = list(pool.map(lambda _: join(kind, topic), range(10)))
    # On Apache Kafka they hear of each other at the interval, and some have to wait for a second one.
    timeout = 120 if broker.name == "apache" else UNHURRIED_MS / 1000 - 10
    await_that(lambda: share(members, 20), "two partitions for each", members, timeout)
    never_two_owners(members)


@pytest.mark.usefixtures("deadly_group")
def test_rebalance_on_crash(kind: Kind, topic: str, topics: Topics, join: Joining) -> None:
    crash = join(kind, topic, alone=True)
    stay = join(kind, topic)
    await_that(lambda: share([crash, stay]), "two partitions for each", [crash, stay])
    await_that(lambda: set(read_counts([crash, stay])) == topics.records(topic), "every record read", [crash, stay])
    had = crash.owned
    crash.host.kill()
    await_that(lambda: share([stay]), "all to the survivor when the session has timed out", [stay])
    again = {record for record in topics.records(topic) if record[:2] in had}
    await_that(lambda: again <= set(stay.seen), "what the dead one had read but not committed", [stay])
    topics.write(topic)
    await_that(lambda: set(stay.seen) >= topics.records(topic) - set(crash.seen), "every later record", [stay])
    never_two_owners([crash, stay])


@pytest.mark.usefixtures("deadly_group")
def test_a_member_that_stood_still_joins_again(kind: Kind, topic: str, topics: Topics, join: Joining) -> None:
    frozen = join(kind, topic, alone=True)
    stay = join(kind, topic)
    await_that(lambda: share([frozen, stay]), "two partitions for each", [frozen, stay])
    frozen.host.freeze()
    await_that(lambda: share([stay]), "all to the one that lives", [stay])
    frozen.host.thaw()
    await_that(lambda: len(frozen.assigned) > 1 and share([frozen, stay]), "two for each again", [frozen, stay])
    topics.write(topic)
    await_that(lambda: set(read_counts([frozen, stay])) == topics.records(topic), "every record read", [frozen, stay])


def test_cooperative_members_keep_what_they_need_not_give(kind: Kind, topic: str, join: Joining) -> None:
    need(kind, "cooperative")
    options: dict[str, str] = {} if kind.is_modern else {"assignor": "cooperative"}
    members: list[Member] = []

    def shared() -> bool:
        return share(members)

    for count in (1, 2, 4):
        members += [join(kind, topic, alone=False, **options) for _ in range(count - len(members))]
        await_that(shared, f"{4 // count} partitions for each of {count}", members)
    first = members[0]
    given = [each for revoked in first.revoked for each in revoked]
    assert len(given) == 3, "it gives away three of four, each once"
    assert set(given).isdisjoint(first.owned), "never one that it keeps"
    never_two_owners(members)


def test_static_member_restarts_without_rebalance(kind: Kind, topic: str, topics: Topics, join: Joining) -> None:
    need(kind, "static")
    one, two = join(kind, topic, instance="one"), join(kind, topic, instance="two")
    await_that(lambda: share([one, two]), "two partitions for each", [one, two])
    # What is written now is read by who is to keep the partition: it is its position that is committed.
    topics.write(topic)
    await_that(lambda: set(read_counts([one, two])) == topics.records(topic), "every record read", [one, two])
    one.call("commit")
    had, events = set(one.owned), (len(two.assigned), len(two.revoked))
    one.close()
    again = join(kind, topic, instance="one")
    await_that(lambda: again.owned == had, "the old assignment", [again, two])
    topics.write(topic)
    await_that(lambda: set(read_counts([one, two, again])) == topics.records(topic), "every later record", [again, two])
    assert (len(two.assigned), len(two.revoked)) == events, "the other member has heard of nothing"
    assert not set(again.seen) & set(one.seen)
    never_two_owners([one, two, again])


@pytest.mark.usefixtures("deadly_group")
def test_static_member_that_crashed_restarts(kind: Kind, topic: str, topics: Topics, join: Joining) -> None:
    need(kind, "static")
    # A classic one has to be back before its session is over; one of KIP-848 has to wait for that.
    session = {} if kind.is_modern else {"session_timeout_ms": 120_000}
    one = join(kind, topic, alone=True, instance="one", **session)
    two = join(kind, topic, instance="two")
    await_that(lambda: share([one, two]), "two partitions for each", [one, two])
    had, events = set(one.owned), (len(two.assigned), len(two.revoked))
    one.host.kill()
    if kind.is_modern:
        # KIP-848: its place is taken until the session of the dead one has timed out.
        await_that(lambda: share([two]), "all to the other one", [two])
        again = join(kind, topic, instance="one")
        await_that(lambda: share([again, two]), "two partitions for each", [again, two])
    else:
        again = join(kind, topic, instance="one")
        await_that(lambda: again.owned == had, "the old assignment", [again, two])
        assert (len(two.assigned), len(two.revoked)) == events, "the other member has heard of nothing"
    never_two_owners([one, two, again])


def test_two_static_members_of_one_id(kind: Kind, topic: str, join: Joining) -> None:
    need(kind, "static")
    one = join(kind, topic, instance="one")
    await_that(lambda: share([one]), "all partitions", [one])
    two = join(kind, topic, instance="one")
    fenced, holder = (two, one) if kind.is_modern else (one, two)
    # Classic: the newer one takes the place. KIP-848: the place is taken.
    if kind.name != "aiokafka" and kind.name != "kafka-python":
        await_that(lambda: bool(fenced.errors), "one of them to be refused", [one, two])
    await_that(lambda: holder.partitions() == {0, 1, 2, 3}, "all partitions to the other", [one, two])


def test_regular_expression(kind: Kind, topics: Topics, group: str, join: Joining) -> None:
    prefix = f"regex-{group}"
    first = topics.make(prefix, 1)
    topics.make("other", 1)
    member = join(kind, pattern=f"^{prefix}-.*")
    await_that(lambda: set(member.seen) == topics.records(first), "the records of the topic that matches", [member])
    need(kind, "regex_later")
    later = topics.make(prefix, 3)
    everything = topics.records(first) | topics.records(later)
    await_that(lambda: set(member.seen) == everything, "the later topic read", [member])
    assert member.owned == {(first, 0), (later, 0), (later, 1), (later, 2)}
    never_two_owners([member])


def test_seek_and_rewind(kind: Kind, topic: str, topics: Topics, join: Joining) -> None:
    member = join(kind, topic)
    await_that(lambda: set(member.seen) == topics.records(topic), "every record read", [member])
    assert len(member.seen) == 20
    member.seen.clear()
    member.call("seek", topic=topic, partition=1, offset=3)
    await_that(lambda: member.seen == [(topic, 1, 3), (topic, 1, 4)], "the records after the seek", [member])
    member.seen.clear()
    member.call("seek", topic=topic, partition=2, offset=4)
    await_that(lambda: member.seen == [(topic, 2, 4)], "the last record again", [member])
    member.seen.clear()
    member.call("rewind")
    await_that(lambda: len(member.seen) >= 20, "every record again", [member])
    assert sorted(member.seen) == sorted(topics.records(topic))


@pytest.mark.nodes(3)
def test_commit_and_resume(kind: Kind, topic: str, topics: Topics, join: Joining) -> None:
    first = join(kind, topic)
    await_that(lambda: set(first.seen) == topics.records(topic), "every record read", [first])
    first.call("commit")
    first.call("commit_offset", topic=topic, partition=1, offset=3)
    first.close()
    second = join(kind, topic)
    await_that(
        lambda: second.seen == [(topic, 1, 3), (topic, 1, 4)] and share([second]), "what was not committed", [second]
    )
    topics.write(topic, 1)
    await_that(lambda: len(second.seen) == 6, "what came later", [second])
    assert sorted(second.seen[2:]) == [(topic, partition, 5) for partition in range(4)]


def test_members_of_different_assignors_are_refused(kind: Kind, topic: str, join: Joining) -> None:
    need(kind, "assignors")
    one = join(kind, topic, assignor="range")
    await_that(lambda: share([one]), "all partitions", [one])
    two = join(kind, topic, assignor="roundrobin")
    await_that(lambda: bool(two.errors), "the refusal", [one, two])
    assert "nconsistent" in two.errors[0] or "INCONSISTENT" in two.errors[0], two.errors
    await_that(lambda: share([one]), "all partitions, still", [one])  # a client may join again of its own accord


@pytest.mark.nodes(1, 3)
def test_members_go_on_when_the_broker_restarts(
    restart: Restart, kind: Kind, topic: str, topics: Topics, join: Joining
) -> None:
    members = [join(kind, topic, auto_commit=True) for _ in range(2)]
    await_that(lambda: share(members), "two partitions for each", members)
    # Read by who has its partition now: nobody waits for a committed offset that it has asked of the node that goes,
    # which librdkafka does not ask of another (`COORDINATOR_ELSEWHERE` in `coordinators.py`).
    topics.write(topic)
    await_that(lambda: set(read_counts(members)) == topics.records(topic), "every record read", members)
    restart()
    topics.write(topic)
    await_that(lambda: set(read_counts(members)) == topics.records(topic), "every later record", members)
    await_that(lambda: share(members), "two partitions for each", members)
