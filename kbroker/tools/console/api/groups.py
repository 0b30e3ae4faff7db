"""Groups of every type: lists, members, lags, why one is stuck; offsets reset after a preview, with ``--writes``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from kbroker.client import ApiNotServed, Client, ClientError, ResponseError
from kbroker.client.group_offsets import (
    CannotReset,
    GroupOffsets,
    NewOffset,
    ShiftBy,
    Strategy,
    look_at_group,
    plan_reset,
    put_offsets,
)
from kbroker.client.groups import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    committed_offsets,
    delete_group,
    list_groups,
)
from kbroker.client.log_places import END, START, AtOffset, AtTime
from kbroker.client.records_io.json_types import Json
from kbroker.client.records_io.times import parse_moment
from kbroker.client.share_groups import SHARE, InFlight, describe_any_group, share_in_flight, share_offsets
from kbroker.client.streams_groups import STREAMS
from kbroker.client.topics import TopicDescription, describe_topics, list_ranges
from kbroker.errors import ErrorCode
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.courses import Point
from kbroker.tools.console.lags import ask_lags
from kbroker.tools.console.record_range import parse_partitions
from kbroker.tools.console.scan import Budget, RecordView, forward
from kbroker.tools.console.sessions import View
from kbroker.tools.diagnosis.findings import Finding
from kbroker.tools.diagnosis.group_watch import Look, ask_lost_records
from kbroker.types import TopicPartition

_MAX_LISTED: Final = 2000
_MAX_IN_FLIGHT: Final = 500
_SPARK_POINTS: Final = 40

_MAX_WAITING: Final = 50
"""Partitions of which it is asked for how long their next record has been waiting."""


async def list_all(call: Call) -> Json:
    """The groups by name, with type and state."""
    words = call.text("filter", "").lower().split()
    found = await call.ask(list_groups)
    chosen = [group for group in found if all(word in group.group_id.lower() for word in words)]
    rows: list[Json] = [
        {"group": group.group_id, "type": group.type, "protocol": group.protocol_type, "state": group.state}
        for group in chosen[:_MAX_LISTED]
    ]
    return {"rows": rows, "total": len(chosen), "all": len(found)}


async def list_lags(call: Call) -> Json:
    """The groups with their lags, how each is, since when, and the first reason why it does not have all records."""
    view = call.view
    lags = await call.ask(lambda client: ask_lags(client, view.groups))
    now_ms = time.time_ns() // 1_000_000
    for each in lags.of:
        view.courses.look(each.listing.group_id, now_ms, each.lag)
    rows: list[Json] = [
        {
            "group": each.listing.group_id,
            "course": [point.amount for point in view.courses.of(each.listing.group_id, _SPARK_POINTS)],
            "state": each.listing.state,
            "members": each.members,
            "lag": each.lag,
            "waiting": each.waiting,
            "topics": {**each.topics},
            **each.progress._asdict(),
            "needs_attention": each.progress.needs_attention,
            "reasons": [*findings_json(each.reasons[:1])],
        }
        for each in lags.of
    ]
    return {"rows": rows, "asked": lags.asked, "groups": lags.groups, "now": now_ms}


async def describe_one(call: Call) -> Json:
    """A group with its members and, for each partition, where it is and how far it is behind; and why it is stuck."""
    group_id, view = call.text("group"), call.view
    return await call.ask(lambda client: _describe(client, group_id, view))


def _describe(client: Client, group_id: str, view: View) -> Json:
    group = describe_any_group(client, group_id)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions: list[Json]
    in_flight: Json = None
    if group.type == SHARE:
        partitions, reasons, in_flight = _share_partitions(client, group)
    else:
        partitions, reasons = _partitions(client, group, owners, view)
    now_ms = time.time_ns() // 1_000_000
    course: list[Json] = [list(point) for point in _course(group_id, partitions, now_ms, view)]
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [_member(member) for member in group.members],
        "partitions": partitions,
        "reasons": reasons,
        "in_flight": in_flight,
        "course": course,
        "flow": [list(point) for point in view.flows.of(group_id)],
        "now": now_ms,
    }


def _course(group_id: str, partitions: Sequence[Json], now_ms: int, view: View) -> list[Point]:
    """The course of the group's lag, with this look, if it tells a lag."""
    rows = [row for row in partitions if isinstance(row, dict)]
    lags = [lag for row in rows if isinstance(lag := row["lag"], int)]
    waiting = [since for row in rows if isinstance(since := row["waiting_since"], int)]
    if lags:
        seconds = max(now_ms - min(waiting), 0) / 1000 if waiting else None if any(lags) else 0.0
        view.courses.look(group_id, now_ms, sum(lags), seconds)
        read = sum(
            end - lag for row in rows if isinstance(end := row["end"], int) and isinstance(lag := row["lag"], int)
        )
        view.flows.look(group_id, now_ms, read, float(read + sum(lags)))
    return view.courses.of(group_id)


def _member(member: GroupMember) -> Json:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host.removeprefix("/"),
        "rack": member.rack,
        "epoch": member.epoch,
        "protocol": member.protocol,
        "topics": list(member.topics),
        "regex": member.topic_regex,
        "assignment": [str(partition) for partition in member.assignment],
        "pending": None
        if member.target is None or set(member.target) == set(member.assignment)
        else [str(partition) for partition in member.target],
    }


def _partitions(
    client: Client, group: GroupDescription, assigned: Mapping[TopicPartition, GroupMember], view: View
) -> tuple[list[Json], list[Json]]:
    """The partitions, and the reasons why records of them wait."""
    owners = assigned if group.type != STREAMS else {}
    committed = committed_offsets(client, group.group_id)
    wanted = sorted({*committed, *owners, *_never_committed(client, group, committed)})
    ranges = list_ranges(client, wanted)
    offsets = {partition: each.offset for partition, each in committed.items()}
    starts = {each: limits[0] for each in owners if isinstance(limits := ranges.get(each), tuple)}
    positions = {**starts, **offsets}  # a member that has committed nothing has yet to read all that is there
    waiting = _waiting_since(client, positions, ranges)
    reasons: list[Json] = []
    if group.type != STREAMS:
        [judged] = view.groups.judge(client, [Look(group, offsets, ranges)])
        reasons += findings_json(judged.reasons)
    rows: list[Json] = []
    for partition in wanted:
        offset = committed.get(partition)
        limits = ranges.get(partition)
        start, end = limits if isinstance(limits, tuple) else (None, None)
        owner, position = owners.get(partition), positions.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": None if offset is None else offset.offset,
                "start": start,
                "end": end,
                "lag": None if position is None or end is None else max(end - position, 0),
                "waiting_since": waiting.get(partition),
                "metadata": "" if offset is None else offset.metadata,
                "member": None if owner is None else owner.member_id,
                "client": None if owner is None else owner.client_id,
                "problem": str(limits) if isinstance(limits, ResponseError) else "",
            }
        )
    return rows, reasons


def _never_committed(
    client: Client, group: GroupDescription, committed: Mapping[TopicPartition, CommittedOffset]
) -> list[TopicPartition]:
    """The other partitions of the topics of a group that nobody is in: members would tell of theirs."""
    if group.members or group.type == STREAMS:
        return []
    topics = sorted({partition.topic for partition in committed})
    found: list[TopicPartition] = []
    for told in describe_topics(client, topics).values() if topics else ():
        if isinstance(told, TopicDescription):  # or it is deleted, or may not be seen
            found += [TopicPartition(told.name, entry.partition) for entry in told.partitions]
    return [partition for partition in found if partition not in committed]


def findings_json(found: Sequence[Finding]) -> list[dict[str, Json]]:
    """Returns findings as the page takes them."""
    return [{**each.document(), "links": [link._asdict() for link in each.links]} for each in found]


def _waiting_since(
    client: Client,
    positions: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, tuple[int, int] | ResponseError],
) -> dict[TopicPartition, int]:
    """Partition -> timestamp in ms of the first record that the group has not had: its lag in time.

    Where the log has none at that offset (it is compacted, or a marker), that of the next record.
    """
    behind: dict[str, dict[int, tuple[int, int]]] = {}
    for partition, offset in list(positions.items())[: _MAX_WAITING * 4]:
        limits = ranges.get(partition)
        if isinstance(limits, tuple) and offset < limits[1]:
            behind.setdefault(partition.topic, {})[partition.partition] = (max(offset, limits[0]), limits[1])
    found: dict[TopicPartition, int] = {}
    budget = Budget(records=20_000, seconds=2)
    for topic, partitions in behind.items():
        for number, (begin, end) in partitions.items():
            if len(found) >= _MAX_WAITING or budget.spent:
                return found
            # Behind an open transaction records wait, too.
            look = RecordView(topic, read_committed=False)
            try:
                page = forward(client, look, {number: begin}, {number: end}, 1, budget)
            except ClientError:
                break  # the topic may not be read, or a leader is down: the page goes without
            if page.records:
                found[TopicPartition(topic, number)] = page.records[0].record.timestamp
    return found


def _share_partitions(client: Client, group: GroupDescription) -> tuple[list[Json], list[Json], Json]:
    """Where a share group is, the reasons why it gets nothing somewhere, and what is in flight.

    A partition may have several members, and none of its records may be done yet.
    """
    try:
        offsets = share_offsets(client, group.group_id)
    except ApiNotServed:
        offsets = {}
    members: dict[TopicPartition, list[GroupMember]] = {}
    for member in group.members:
        for partition in member.assignment:
            members.setdefault(partition, []).append(member)
    wanted = sorted({*offsets, *members})
    ranges = list_ranges(client, wanted)
    rows: list[Json] = []
    for partition in wanted:
        share = offsets.get(partition)
        limits = ranges.get(partition)
        start, end = limits if isinstance(limits, tuple) else (None, None)
        lag = None if share is None else share.lag
        if lag is None and share is not None and share.start is not None and end is not None:
            lag = max(end - share.start, 0)
        own = members.get(partition, [])
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": None if share is None else share.start,
                "start": start,
                "end": end,
                "lag": lag,
                "waiting_since": None,
                "metadata": "",
                "member": own[0].member_id if own else None,
                "client": ", ".join(member.client_id for member in own) or None,
                "problem": str(limits) if isinstance(limits, ResponseError) else "",
            }
        )
    unknown = {partition: limits for partition, limits in ranges.items() if isinstance(limits, ResponseError)}
    reasons: list[Json] = [*findings_json(ask_lost_records(client, group, {}, unknown))]
    return rows, reasons, _in_flight(client, group, wanted)


def _in_flight(client: Client, group: GroupDescription, partitions: Sequence[TopicPartition]) -> Json:
    """The first ranges in flight, how many there are, and the partitions of which it is not known what is in flight."""
    told = share_in_flight(client, group, partitions)
    ranges: list[InFlight] = []
    count = 0
    problems: list[Json] = []
    for partition, found in told.items():
        if found is None or isinstance(found, ResponseError):
            problems.append({"partition": str(partition), "problem": "" if found is None else str(found)})
        else:
            ranges += found.ranges
            count += len(found.ranges) + found.left_out
    rows: list[Json] = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "first": each.first_offset,
            "last": each.last_offset,
            "state": each.state,
            "deliveries": each.delivery_count,
            "member": each.member_id,
            "client": None if each.member is None else each.member.client_id,
            "host": None if each.member is None else each.member.host.removeprefix("/"),
            "lock_ms_left": each.lock_ms_left,
        }
        for each in ranges[:_MAX_IN_FLIGHT]
    ]
    return {"rows": rows, "ranges": count, "untold": problems}


# --- Reset and delete -----------------------------------------------------------------------------------------------

STRATEGIES: Final = ("earliest", "latest", "offset", "shift", "time")


def _strategy(call: Call) -> Strategy:
    match call.choice("to", STRATEGIES, ""):
        case "earliest":
            return START
        case "latest":
            return END
        case "offset":
            return AtOffset(call.number("offset"))
        case "shift":
            return ShiftBy(call.number("by", lowest=-(2**62), highest=2**62))
        case _:
            try:
                return AtTime(parse_moment(call.text("at"), time.time_ns() // 1_000_000))
            except ValueError as error:
                raise RequestRefused(400, str(error)) from None


async def preview_reset(call: Call) -> Json:
    """The changes that a reset would make, and why it would be refused now; nothing is changed."""
    group_id, where, strategy = call.text("group"), _where(call), _strategy(call)
    group, rows = await call.ask(lambda client: _plan(client, group_id, *where, strategy))
    return {"rows": [_new_offset(row) for row in rows], "refusal": group.refusal, "note": group.note}


async def reset_offsets(call: Call) -> Json:
    """Reset a group's offsets of some partitions of a topic, of all of them, or of all that it has offsets for."""
    group_id, where, strategy = call.text("group"), _where(call), _strategy(call)

    def reset(client: Client) -> list[NewOffset]:
        group, rows = _plan(client, group_id, *where, strategy)
        try:
            refused = put_offsets(client, group, rows)
        except CannotReset as error:
            raise RequestRefused(409, str(error)) from None
        if refused:
            first = next(iter(refused.values()))
            raise RequestRefused(409, f"{len(refused)} of {len(rows)} offsets are not reset: {first}")
        return rows

    rows = await call.write("reset-offsets", group_id, _where_details(where, strategy), reset)
    many = "1 offset of group {} is" if len(rows) == 1 else f"{len(rows)} offsets of group {{}} are"
    return {"done": f"{many.format(group_id)} reset", "rows": [_new_offset(row) for row in rows]}


def _where(call: Call) -> tuple[str, tuple[int, ...] | None]:
    """The topic whose offsets are meant, empty for all topics, and some of its partitions."""
    topic, partitions = call.text("topic", ""), parse_partitions(call.text("partitions", ""))
    if partitions is not None and not topic:
        raise RequestRefused(400, "choose a topic whose partitions are meant")
    return topic, partitions


def _where_details(where: tuple[str, tuple[int, ...] | None], strategy: Strategy) -> Json:
    topic, partitions = where
    return {"topic": topic, "partitions": None if partitions is None else list(partitions), "strategy": str(strategy)}


def _plan(
    client: Client, group_id: str, topic: str, numbers: tuple[int, ...] | None, strategy: Strategy
) -> tuple[GroupOffsets, list[NewOffset]]:
    group = look_at_group(client, group_id)
    if not group.type:
        raise ResponseError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
    if topic:
        there = client.partitions_of(topic)
        for number in numbers or ():
            if number not in there:
                raise RequestRefused(404, f"topic {topic} has no partition {number}")
        partitions = [TopicPartition(topic, number) for number in (there if numbers is None else numbers)]
    else:
        partitions = group.partitions
    if not partitions:
        raise RequestRefused(409, f"group {group_id} has no offsets: choose a topic")
    try:
        return group, plan_reset(client, group, partitions, strategy)
    except CannotReset as error:
        raise RequestRefused(409, str(error)) from None


def _new_offset(row: NewOffset) -> Json:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "current": row.current,
        "new": row.new,
        "change": row.change,
        "note": row.note,
    }


async def delete_one(call: Call) -> Json:
    """Delete a group without members, with its offsets."""
    group_id = call.text("group")
    if call.text("confirm", "") != group_id:
        raise RequestRefused(400, "type the group's name to delete it")
    await call.write("delete-group", group_id, None, lambda client: delete_group(client, group_id))
    return {"done": f"group {group_id} is deleted"}
