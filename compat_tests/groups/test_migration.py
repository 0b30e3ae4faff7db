"""Groups that go from one protocol to the other, member by member, while they work: KIP-848's online migration."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from compat_tests.groups import hosts
from compat_tests.groups.conftest import Joining, Topics
from compat_tests.groups.hosts import KINDS, Kind, await_that, never_two_owners, read_counts
from compat_tests.groups.test_members import share
from tests.patience import LONG, eventually

CLASSIC = [name for name, kind in KINDS.items() if not kind.is_modern]
MODERN = [name for name, kind in KINDS.items() if kind.is_modern]


def usable(name: str, has_modern_groups: bool) -> Kind:
    """The client, or a skip."""
    kind = KINDS[name]
    reason = hosts.unavailable(kind)
    if not has_modern_groups:
        reason = "the broker does not serve ConsumerGroupHeartbeat"
    if reason:
        pytest.skip(reason)
    return kind


@pytest.fixture(params=CLASSIC)
def old(request: pytest.FixtureRequest, has_modern_groups: bool) -> Kind:
    """A client of the classic protocol."""
    return usable(request.param, has_modern_groups)


@pytest.fixture(params=MODERN)
def new(request: pytest.FixtureRequest, has_modern_groups: bool) -> Kind:
    """A client of the consumer protocol."""
    return usable(request.param, has_modern_groups)


def type_of(admin: AdminClient, group: str) -> ConsumerGroupType:
    """The type of the group as ListGroups tells it."""
    for each in admin.list_consumer_groups().result(LONG).valid:
        if each.group_id == group:
            found: ConsumerGroupType = each.type
            return found
    return ConsumerGroupType.UNKNOWN


def test_upgrade_and_downgrade_one_by_one(
    old: Kind, new: Kind, group: str, topic: str, topics: Topics, admin: AdminClient, join: Joining
) -> None:
    first, second = join(old, topic, auto_commit=True), join(old, topic, auto_commit=True)
    everyone = [first, second]
    await_that(lambda: share(everyone), "two partitions for each", everyone)
    assert type_of(admin, group) == ConsumerGroupType.CLASSIC
    # Up: a member of the new protocol comes, then each of the old leaves for another new one.
    third = join(new, topic, auto_commit=True)
    everyone.append(third)
    await_that(lambda: share(everyone), "one or two partitions for each of the mixed group", everyone)
    assert type_of(admin, group) == ConsumerGroupType.CONSUMER
    topics.write(topic)
    await_that(lambda: set(read_counts(everyone)) == topics.records(topic), "every record read", everyone)
    first.close()
    fourth = join(new, topic, auto_commit=True)
    everyone.append(fourth)
    await_that(lambda: share([second, third, fourth]), "shared with one of the old", everyone)
    second.close()
    await_that(lambda: share([third, fourth]), "two partitions for each of the new", everyone)
    topics.write(topic)
    await_that(lambda: set(read_counts(everyone)) == topics.records(topic), "every record read", everyone)
    # And back.
    fifth = join(old, topic, auto_commit=True)
    everyone.append(fifth)
    await_that(lambda: share([third, fourth, fifth]), "shared with one of the old again", everyone)
    assert type_of(admin, group) == ConsumerGroupType.CONSUMER
    third.close()
    fourth.close()
    await_that(lambda: share([fifth]), "all to the last, of the old protocol", everyone)
    assert type_of(admin, group) == ConsumerGroupType.CLASSIC
    topics.write(topic)
    await_that(lambda: set(read_counts(everyone)) == topics.records(topic), "every record read", everyone)
    never_two_owners(everyone)


def test_offsets_stay_through_both_changes(
    old: Kind, new: Kind, group: str, topic: str, topics: Topics, admin: AdminClient, join: Joining
) -> None:
    for count, kind in enumerate((old, new, old)):
        member = join(kind, topic)
        wanted = {record for record in topics.records(topic) if record[2] >= 5 * count}
        await_that(lambda: set(member.seen) == wanted, "what the one before had not committed", [member])  # noqa: B023
        member.call("commit")
        member.close()
        topics.write(topic)

    def state() -> confluent_kafka.ConsumerGroupState:
        found: confluent_kafka.ConsumerGroupState = admin.describe_consumer_groups([group])[group].result(LONG).state
        return found

    # A client may end before the coordinator has heard of its leaving.
    eventually(lambda: state() == confluent_kafka.ConsumerGroupState.EMPTY, "the group to be empty")
