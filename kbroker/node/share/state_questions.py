"""The five questions to a share coordinator, each as a step of a core of this node and as a request to another broker.

``T`` is the part of a question about one share partition, ``R`` the part of its answer (keys 83 to 87).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_state import SharePartitionKey, SharePartitionState, StateBatch, StateSummary
from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.messages import share_group_state as wire

T = TypeVar("T")
R = TypeVar("R")
P = TypeVar("P")
Part = tuple[SharePartitionKey, T]


class StateQuestion(NamedTuple, Generic[T, R]):
    """A question to the share coordinator, of the five that KIP-932 has an API for."""

    name: str
    step: Callable[[ShareCoordinator, SharePartitionKey, T, int], CoordinatorResult[R]]
    """Runs in the core of a shard of this node."""
    request: Callable[[str, Mapping[SharePartitionKey, T]], Any]
    """The request about share partitions of one group."""
    answer: Callable[[Any], R]
    """Reads a partition's part of a response without an error."""
    is_write: bool = False
    """Whether it has changes of states kept."""


def _request(
    request_class: Callable[..., Any], topic_class: Callable[..., Any], part: Callable[[SharePartitionKey, T], Any]
) -> Callable[[str, Mapping[SharePartitionKey, T]], Any]:
    def make(group_id: str, items: Mapping[SharePartitionKey, T]) -> Any:
        by_topic: dict[Uuid, list[Any]] = {}
        for key, item in items.items():
            by_topic.setdefault(key.topic_id, []).append(part(key, item))
        topics = [topic_class(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic.items()]
        return request_class(group_id=group_id, topics=topics)

    return make


def answers_of(
    question: StateQuestion[T, R], group_id: str, response: Any
) -> Iterator[tuple[SharePartitionKey, R | ErrorCode]]:
    """The answer for each share partition of a response: its value, or its error."""
    for topic in response.results:
        for part in topic.partitions:
            key = SharePartitionKey(group_id, Uuid(topic.topic_id), part.partition)
            yield key, ErrorCode.of(part.error_code) or question.answer(part)


def _nothing(part: object) -> None:
    return None


def _state(part: wire.ReadPartitionResult) -> SharePartitionState:
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in part.state_batches
    )
    return SharePartitionState(part.state_epoch, -1, part.start_offset, batches=batches)


def _summary(part: wire.SummaryPartitionResult) -> StateSummary:
    return StateSummary(part.state_epoch, part.leader_epoch, part.start_offset, part.delivery_complete_count)


def _write_part(key: SharePartitionKey, state: SharePartitionState) -> wire.WritePartitionData:
    return wire.WritePartitionData(
        partition=key.partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=[
            wire.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in state.batches
        ],
    )


INITIALIZE: StateQuestion[tuple[int, int], None] = StateQuestion(
    "initialize share group state",
    lambda core, key, item, now_ms: core.initialize(key, *item, now_ms),
    _request(
        wire.InitializeShareGroupStateRequest,
        wire.InitializeStateData,
        lambda key, item: wire.InitializePartitionData(
            partition=key.partition, state_epoch=item[0], start_offset=item[1]
        ),
    ),
    _nothing,
)
"""A part of the question: state epoch and start offset."""

READ: StateQuestion[int, SharePartitionState] = StateQuestion(
    "read share group state",
    lambda core, key, item, now_ms: core.read(key, item, now_ms),
    _request(
        wire.ReadShareGroupStateRequest,
        wire.ReadStateData,
        lambda key, item: wire.PartitionData(partition=key.partition, leader_epoch=item),
    ),
    _state,
)
"""A part of the question: the leader epoch. The response has none."""

WRITE: StateQuestion[SharePartitionState, None] = StateQuestion(
    "write share group state",
    lambda core, key, item, now_ms: core.write(key, item, now_ms),
    _request(wire.WriteShareGroupStateRequest, wire.WriteStateData, _write_part),
    _nothing,
    is_write=True,
)

DELETE: StateQuestion[None, None] = StateQuestion(
    "delete share group state",
    lambda core, key, item, now_ms: core.delete(key),
    _request(
        wire.DeleteShareGroupStateRequest,
        wire.DeleteStateData,
        lambda key, item: wire.DeletePartitionData(partition=key.partition),
    ),
    _nothing,
)

READ_SUMMARY: StateQuestion[int, StateSummary] = StateQuestion(
    "read share group state summary",
    lambda core, key, item, now_ms: CoordinatorResult(core.read_summary(key)),
    _request(
        wire.ReadShareGroupStateSummaryRequest,
        wire.ReadStateSummaryData,
        lambda key, item: wire.PartitionData(partition=key.partition, leader_epoch=item),
    ),
    _summary,
)
"""A part of the question: the leader epoch, which is not looked at."""
