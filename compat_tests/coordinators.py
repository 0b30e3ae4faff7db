"""Waits until coordinators are ready for every name: raw requests are not repeated, as clients repeat theirs.

A name belongs to one of the fifty partitions of its coordinators' topic, and a broker loads each by itself. What it
answers about one name says nothing of another, so each partition is asked.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection

from kbroker.client import ClientError
from kbroker.client.connection import Connection
from kbroker.cores.coordinator.partitioner import partition_for
from kbroker.types import Uuid, uuid_to_str
from kbroker.wire.messages.described_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DescribeGroupsRequest
from kbroker.wire.messages.share_group_state import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from tests.patience import SHORT, eventually

NOT_READY = (14, 15, 16)
"""Loading, not available, not the coordinator."""
COORDINATOR_ELSEWHERE = (15, 16)
"""Errors (not available, not the coordinator) after which a consumer of librdkafka 2.16 has to be replaced.

It never reads a partition for which it asked a broker for the committed offset that is no longer the coordinator: it
says so, finds the new one, and does not ask that one (confluentinc/librdkafka#5586). What helps is what helps its
users: another consumer.
"""
_PARTITIONS = 50
"""Of each coordinators' topic, where nobody says otherwise."""

_Ask = Callable[[Connection, float], Collection[str]]
"""The names that one broker coordinates now."""


def await_group_coordinators(bootstrap: str) -> None:
    """Wait until every group id has a broker that coordinates it."""
    names = _names()
    request = DescribeGroupsRequest(groups=list(names))

    def ready(connection: Connection, deadline: float) -> Collection[str]:
        groups = connection.request(request, deadline).groups
        return [each.group_id for each in groups if each.error_code not in NOT_READY]

    _await(bootstrap, 0, names, ready)


def await_transaction_coordinators(bootstrap: str) -> None:
    """Wait until every transactional id has a broker that coordinates it."""
    names = _names()
    request = DescribeTransactionsRequest(transactional_ids=list(names))

    def ready(connection: Connection, deadline: float) -> Collection[str]:
        states = connection.request(request, deadline).transaction_states
        return [each.transactional_id for each in states if each.error_code not in NOT_READY]

    _await(bootstrap, 1, names, ready)


def await_share_coordinators(bootstrap: str, topic_id: Uuid) -> None:
    """Wait until every share partition of a topic has a broker that keeps its state."""
    rest = f":{uuid_to_str(topic_id)}:0"
    names = _names(rest)

    def ready(connection: Connection, deadline: float) -> Collection[str]:
        found = []
        for name in names:
            data = ReadStateSummaryData(topic_id=topic_id, partitions=[PartitionData(partition=0)])
            request = ReadShareGroupStateSummaryRequest(group_id=name.removesuffix(rest), topics=[data])
            if not connection.request(request, deadline).results[0].partitions[0].error_code:
                found.append(name)
        return found

    _await(bootstrap, 2, names, ready)


def _names(rest: str = "") -> Collection[str]:
    """A name of each partition."""
    names: dict[int, str] = {}
    for number in itertools.count():
        name = f"any-{number}{rest}"
        names.setdefault(partition_for(name, _PARTITIONS), name)
        if len(names) == _PARTITIONS:
            return names.values()
    raise AssertionError


def _await(bootstrap: str, key_type: int, names: Collection[str], ready: _Ask) -> None:
    # The first question about one of them makes the topic.
    find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(names)[:1])

    def all_ready() -> bool:
        missing = {*names}
        for address in bootstrap.split(","):  # of several brokers one coordinates each
            host, _, port = address.rpartition(":")
            deadline = time.monotonic() + SHORT
            try:
                connection = Connection(host, int(port), client_id="compat", deadline=deadline)
            except ClientError:
                return False
            try:
                connection.request(find, deadline)
                missing.difference_update(ready(connection, deadline))
            except ClientError:
                return False
            finally:
                connection.close()
        return not missing

    eventually(all_ready, f"all coordinators of kind {key_type}")
