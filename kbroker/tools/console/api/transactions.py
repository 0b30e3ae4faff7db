"""Transactions: those that are known, what an open one holds up, hanging ones; aborted with ``--writes``."""

from __future__ import annotations

import time
from typing import Final

from kbroker.client import Client, ResponseError
from kbroker.client.open_transactions import OPEN_STATES
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import LATEST, list_offsets
from kbroker.client.transactions import abort_hanging, abort_transaction, describe_transaction, list_transactions
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.diagnosis.group_watch import ask_holders
from kbroker.types import TopicPartition

_MAX_LISTED: Final = 1000
_MAX_DESCRIBED: Final = 100


async def list_all(call: Call) -> Json:
    """The transactional ids; of the open ones with their beginning and partitions."""
    words = call.text("filter", "").lower().split()
    only_open = call.flag("open")
    return await call.ask(lambda client: _list(client, words, only_open))


def _list(client: Client, words: list[str], only_open: bool) -> Json:
    listed = list_transactions(client, states=OPEN_STATES if only_open else ())
    chosen = [each for each in listed.found if all(word in each.transactional_id.lower() for word in words)]
    chosen.sort(key=lambda each: (each.state not in OPEN_STATES, each.transactional_id))
    rows: list[Json] = []
    described = 0
    for each in chosen[:_MAX_LISTED]:
        row: dict[str, Json] = {
            "id": each.transactional_id,
            "state": each.state,
            "producer": each.producer_id,
            "coordinator": each.coordinator,
            "open": each.state in OPEN_STATES,
            "since": None,
            "timeout": None,
            "partitions": [],
        }
        if each.state in OPEN_STATES and described < _MAX_DESCRIBED:
            described += 1
            try:
                told = describe_transaction(client, each.transactional_id)
            except ResponseError:
                pass  # it has ended meanwhile, or is not this user's
            else:
                row["since"], row["timeout"] = told.start_timestamp, told.timeout_ms
                row["partitions"] = [str(partition) for partition in told.partitions]
        rows.append(row)
    return {
        "rows": rows,
        "total": len(chosen),
        "all": len(listed.found),
        "missing": list(listed.missing.values()),
        "now": time.time_ns() // 1_000_000,
    }


async def list_held(call: Call) -> Json:
    """Partitions of a topic whose last stable offset is held by an open transaction, and by which producer."""
    name = call.text("topic")
    return await call.ask(lambda client: _held(client, name))


def _held(client: Client, name: str) -> Json:
    topic = find_topic(client, name)
    wanted = {TopicPartition(name, each.partition): LATEST for each in topic.partitions if each.leader is not None}
    ends = list_offsets(client, wanted)
    stable = list_offsets(client, wanted, read_committed=True)
    held: dict[TopicPartition, tuple[int, int]] = {}
    for partition in wanted:
        end, last = ends[partition], stable[partition]
        if not isinstance(end, ResponseError) and not isinstance(last, ResponseError) and last.offset < end.offset:
            held[partition] = (last.offset, end.offset)
    rows: list[Json] = [
        {
            "partition": partition.partition,
            "stable": held[partition][0],
            "end": held[partition][1],
            "producer": opened.producer.producer_id,
            "epoch": opened.producer.producer_epoch,
            "start": opened.start_offset,
            "last": opened.producer.last_timestamp,
            "transaction": None if owner is None else owner.transactional_id,
            "since": None if owner is None else owner.start_timestamp,
        }
        for partition, holders in ask_holders(client, list(held)).items()
        for opened, owner in holders
    ]
    return {"rows": rows, "now": time.time_ns() // 1_000_000}


async def abort_one(call: Call) -> Json:
    """Abort an id's open transaction, and fence its producer."""
    transactional_id = call.text("id")
    if call.text("confirm", "") != transactional_id:
        raise RequestRefused(400, "type the transactional id to abort its transaction")
    found = await call.write(
        "abort-transaction", transactional_id, None, lambda client: abort_transaction(client, transactional_id)
    )
    return {"done": f"the transaction of {transactional_id} is aborted; its state is {found.state}"}


async def abort_held(call: Call) -> Json:
    """End a transaction in one partition, which its coordinator knows nothing of (KIP-664)."""
    partition = TopicPartition(call.text("topic"), call.number("partition"))
    start = call.number("start")
    producer = await call.write(
        "abort-hanging", str(partition), {"start_offset": start}, lambda client: abort_hanging(client, partition, start)
    )
    return {"done": f"the transaction of producer {producer.producer_id} in {partition} is aborted"}
