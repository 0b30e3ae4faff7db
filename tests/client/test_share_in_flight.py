"""The question for what is in flight: whom it goes to, and what the answers of brokers that know it, or not, become."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.client import Client, ResponseError, share_groups
from kbroker.client.groups import GroupDescription, GroupMember
from kbroker.client.share_groups import InFlight, PartitionInFlight, share_in_flight
from kbroker.errors import ErrorCode
from kbroker.tools.cli.share_group import UNTOLD, add_in_flight, print_share_partitions
from kbroker.types import TopicPartition
from kbroker.wire.messages import share_group_offsets as describe
from tests.client.fake_broker import FakeBroker

MEMBER = GroupMember("m-1", None, "worker", "/10.0.0.7", ())
GROUP = GroupDescription("g", "Share", "Stable", "share", "simple", 1, (MEMBER,))
HERE, THERE, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
HELD = describe.InFlightRange(
    first_offset=3, last_offset=5, delivery_state=1, delivery_count=2, member_id="m-1", lock_ms_left=700
)
LEFT = describe.InFlightRange(first_offset=6, last_offset=6, delivery_state=1, delivery_count=1, member_id="m-0")
FREE = describe.InFlightRange(first_offset=8, last_offset=8, delivery_state=9, delivery_count=1)


def answer(*partitions: describe.DescribeShareGroupOffsetsResponsePartition, error: int = 0) -> Any:
    topic = describe.DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=list(partitions))
    group = describe.DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic], error_code=error)
    return describe.DescribeShareGroupOffsetsResponse(groups=[group])


def part(index: int, *ranges: describe.InFlightRange, left_out: int = 0, error: int = 0) -> Any:
    told = describe.InFlight(ranges=list(ranges), ranges_left_out=left_out) if ranges else None
    return describe.DescribeShareGroupOffsetsResponsePartition(partition_index=index, in_flight=told, error_code=error)


def asked(
    *answers: Any, partitions: tuple[TopicPartition, ...] = (HERE, THERE)
) -> tuple[dict[TopicPartition, PartitionInFlight | ResponseError | None], list[Any]]:
    """The outcome, and the requests that the broker got."""
    left = list(answers)
    with FakeBroker({describe.DescribeShareGroupOffsetsRequest: lambda request, version: left.pop(0)}) as broker:
        with Client(broker.bootstrap) as client:
            found = share_in_flight(client, GROUP, partitions)
        assert not left
        requests = [request for name, _, request in broker.requests if name == "DescribeShareGroupOffsets"]
        return found, [(each.wants_in_flight, each.groups[0].topics[0].partitions) for each in requests]


def test_holders_are_joined_with_the_groups_members() -> None:
    found, requests = asked(answer(part(0, HELD, LEFT, left_out=4), part(1, FREE)))
    assert found == {
        HERE: PartitionInFlight(
            (
                InFlight(HERE, 3, 5, "acquired", 2, "m-1", MEMBER, 700),
                InFlight(HERE, 6, 6, "acquired", 1, "m-0", None, None),
            ),
            4,
        ),
        # A state that is newer than this client is shown as its number.
        THERE: PartitionInFlight((InFlight(THERE, 8, 8, "9", 1, None, None, None),), 0),
    }
    assert requests == [(True, [0, 1])]


def test_a_leader_that_has_moved_is_asked_again() -> None:
    moved = part(1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    found, requests = asked(answer(part(0, HELD), moved), answer(part(1, FREE)))
    assert requests == [(True, [0, 1]), (True, [1])]
    assert all(isinstance(each, PartitionInFlight) for each in found.values())


def test_a_broker_that_skips_the_field_tells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = asked(answer(part(0), part(1, HELD)))
    assert found[HERE] is None and isinstance(found[THERE], PartitionInFlight)
    with FakeBroker({describe.DescribeShareGroupOffsetsRequest: lambda request, version: answer(part(0))}) as broker:
        rows: list[dict[str, Any]] = [{"topic": "t", "partition": 0, "start_offset": 0, "lag": 1, "members": []}]
        with Client(broker.bootstrap) as client:
            add_in_flight(client, GROUP, rows, {})
        print_share_partitions({"partitions": rows, "lag": 1})
        assert capsys.readouterr().out.splitlines()[-1] == f"t-0: {UNTOLD}"
        del broker.versions[describe.DescribeShareGroupOffsetsRequest.api_key]  # Apache Kafka before 4.1
        with Client(broker.bootstrap) as client:
            assert share_in_flight(client, GROUP, [HERE]) == {HERE: None}


def test_what_is_refused_or_gone_says_so() -> None:
    found, _ = asked(answer(part(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)), partitions=(HERE, GONE))
    assert [type(found[each]) for each in (HERE, GONE)] == [ResponseError, ResponseError]
    assert "TOPIC_AUTHORIZATION_FAILED" in str(found[HERE]) and "UNKNOWN_TOPIC_OR_PARTITION" in str(found[GONE])
    found, _ = asked(answer(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert {getattr(each, "code", None) for each in found.values()} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_a_group_that_is_there_is_never_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may not see one topic of a Streams group is told so: its reset would be of other topics."""

    def refuse(code: ErrorCode) -> Any:
        def describe(client: object, group_id: str) -> GroupDescription:
            raise ResponseError(code, group_id)

        return describe

    for name, code in (
        ("describe_group", ErrorCode.GROUP_ID_NOT_FOUND),
        ("describe_share_group", ErrorCode.UNSUPPORTED_VERSION),
        ("describe_streams_group", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        monkeypatch.setattr(share_groups, name, refuse(code))
    client: Any = None
    with pytest.raises(ResponseError) as caught:
        share_groups.describe_any_group(client, "g")
    assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    monkeypatch.setattr(share_groups, "describe_streams_group", refuse(ErrorCode.GROUP_ID_NOT_FOUND))
    with pytest.raises(ResponseError) as caught:
        share_groups.describe_any_group(client, "g")
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
