"""The state of share partitions, as the share coordinator's five APIs read and write it (KIP-932).

Each names partitions of topics, by id, for one share group, and is answered for each share partition. Brokers send them
to one another: partition leaders (read, write) and group coordinators (the others). The rules are those of Kafka's
``ShareCoordinatorService``.

InitializeShareGroupState (key 83): the group coordinator begins share partitions anew (KIP-932).
Served: 0.

ReadShareGroupState (key 84): a new leader of a partition takes over the state of its share partitions (KIP-932).
Served: 0.

WriteShareGroupState (key 85): a partition's leader has its decisions about deliveries kept (KIP-932).
Served: 0 to 1. 1: delivery_complete_count (KIP-1226).

DeleteShareGroupState (key 86): the group coordinator has share partitions forgotten (KIP-932).
Served: 0.

ReadShareGroupStateSummary (key 87): start offsets and epochs of share partitions, for a description (KIP-932).
Served: 0 to 1. 1: delivery_complete_count (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import trio

from kbroker.cores import share_state
from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_state import SharePartitionKey, SharePartitionState, StateSummary
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_act_as_node
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import portions
from kbroker.handlers.common.metadata_common import error_fields, standard_message
from kbroker.handlers.registration import handler
from kbroker.runtime.later import Later
from kbroker.types import Uuid
from kbroker.wire.messages.share_group_state import (
    DeletePartitionData,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    InitializePartitionData,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
    ReadPartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateResult,
    ReadStateSummaryResult,
    StateBatch,
    SummaryPartitionResult,
    WritePartitionData,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

P = TypeVar("P", bound="PartitionOfRequest")
P_co = TypeVar("P_co", bound="PartitionOfRequest", covariant=True)
R = TypeVar("R")
T = TypeVar("T")
Step = Callable[[ShareCoordinator, SharePartitionKey, P, int], CoordinatorResult[R]]

_OF_A_SHARE_PARTITION = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that say it all. Others are the coordinator's, and the message names what could not be done."""


class PartitionOfRequest(Protocol):
    """A request's part about one share partition."""

    partition: int


class TopicOfRequest(Protocol[P_co]):
    """A request's part about one topic."""

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> Sequence[P_co]: ...


class StateRequest(Protocol[P_co]):
    """A request of one of the five APIs."""

    @property
    def group_id(self) -> str: ...

    @property
    def topics(self) -> Sequence[TopicOfRequest[P_co]]: ...


Answers = dict[Uuid, dict[int, R | ApiError]]
"""By topic and partition, in the order in which the request names them first."""


async def answer_each(
    request: StateRequest[P],
    ctx: RequestContext,
    doing: str,
    step: Step[P, R],
    *,
    allows_empty: bool = False,
    is_write: bool = False,
) -> Answers[R]:
    """Run the step for each share partition of a request, if its principal may.

    ``doing`` is for messages, such as ``write share group state``. An error has the message that the client gets.
    Unless the API ``allows_empty``, a request with a topic without partitions is answered with nothing at all.
    ``is_write``: it has changes of states kept.
    """
    if not may_act_as_node(ctx):
        return _refused(request, ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), doing)
    if not request.group_id or not (allows_empty or all(topic.partitions for topic in request.topics)):
        return {}
    answers: Answers[R] = {}
    assert ctx.services.share_groups is not None, "this is an API of brokers"
    coordinators = ctx.services.share_groups().coordinators
    run = coordinators.write_each if is_write else coordinators.run_each
    for parts in _rounds(request):
        begun: list[Later[dict[SharePartitionKey, R | ApiError]]] = []
        for portion in portions(ctx, parts.items()):
            if begun:
                await trio.lowlevel.checkpoint()
            begun.append(run(dict(portion), step))
        for each in begun:
            for key, answer in (await each).items():
                told = _told(answer, doing) if isinstance(answer, ApiError) else answer
                answers.setdefault(key.topic_id, {})[key.partition] = told
    return answers


def results_of(
    answers: Answers[R], topic: Callable[..., T], partition: Callable[[int, R | ApiError], object]
) -> list[T]:
    """The results of a response: ``topic`` makes that of a topic, ``partition`` that of a partition by its answer."""
    return [
        topic(topic_id=topic_id, partitions=[partition(index, answer) for index, answer in parts.items()])
        for topic_id, parts in answers.items()
    ]


def _rounds(request: StateRequest[P]) -> list[dict[SharePartitionKey, P]]:
    """The parts of a request by share partition: one round, and more for what it names several times."""
    rounds: list[dict[SharePartitionKey, P]] = []
    for topic in request.topics:
        for part in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, part.partition)
            free = next((each for each in rounds if key not in each), None)
            if free is None:
                free = {}
                rounds.append(free)
            free[key] = part
    return rounds


def _refused(request: StateRequest[P], error: ApiError, doing: str) -> Answers[R]:
    told = _told(error, doing)
    return {topic.topic_id: {part.partition: told for part in topic.partitions} for topic in request.topics}


def _told(error: ApiError, doing: str) -> ApiError:
    """The error with the message that the client gets."""
    message = error.message or standard_message(error.code)
    if error.code not in _OF_A_SHARE_PARTITION:
        message = f"Unable to {doing}: {message or error.code.name}"
    return ApiError(error.code, message)


@handler(InitializeShareGroupStateRequest)
async def handle_initialize_share_group_state(
    request: InitializeShareGroupStateRequest, ctx: RequestContext
) -> InitializeShareGroupStateResponse:
    """Have the share coordinator keep each share partition with its epoch and start offset, and nothing else."""
    answers = await answer_each(request, ctx, "initialize share group state", _initialize, allows_empty=True)
    return InitializeShareGroupStateResponse(results=results_of(answers, InitializeStateResult, _changed))


def _initialize(
    core: ShareCoordinator, key: SharePartitionKey, part: InitializePartitionData, now_ms: int
) -> CoordinatorResult[None]:
    return core.initialize(key, part.state_epoch, part.start_offset, now_ms)


@handler(ReadShareGroupStateRequest)
async def handle_read_share_group_state(
    request: ReadShareGroupStateRequest, ctx: RequestContext
) -> ReadShareGroupStateResponse:
    """Read each share partition's state; from then on writes of earlier leaders are refused."""
    answers = await answer_each(request, ctx, "read share group state", _read)
    return ReadShareGroupStateResponse(results=results_of(answers, ReadStateResult, _state_read))


def _read(
    core: ShareCoordinator, key: SharePartitionKey, part: PartitionData, now_ms: int
) -> CoordinatorResult[SharePartitionState]:
    return core.read(key, part.leader_epoch, now_ms)


def _state_read(index: int, answer: SharePartitionState | ApiError) -> ReadPartitionResult:
    if isinstance(answer, ApiError):
        code, message = error_fields(answer)
        return ReadPartitionResult(partition=index, error_code=code, error_message=message)
    return ReadPartitionResult(
        partition=index,
        state_epoch=answer.state_epoch,
        start_offset=answer.start_offset,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in answer.batches
        ],
    )


@handler(WriteShareGroupStateRequest)
async def handle_write_share_group_state(
    request: WriteShareGroupStateRequest, ctx: RequestContext
) -> WriteShareGroupStateResponse:
    """Have the share coordinator keep what changed; an answer without an error says that it is committed."""
    answers = await answer_each(request, ctx, "write share group state", _write, is_write=True)
    return WriteShareGroupStateResponse(results=results_of(answers, WriteStateResult, _changed))


def _write(
    core: ShareCoordinator, key: SharePartitionKey, part: WritePartitionData, now_ms: int
) -> CoordinatorResult[None]:
    changed = SharePartitionState(
        part.state_epoch,
        part.leader_epoch,
        part.start_offset,
        part.delivery_complete_count,
        tuple(
            share_state.StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in part.state_batches
        ),
    )
    return core.write(key, changed, now_ms)


@handler(DeleteShareGroupStateRequest)
async def handle_delete_share_group_state(
    request: DeleteShareGroupStateRequest, ctx: RequestContext
) -> DeleteShareGroupStateResponse:
    """Have the share coordinator forget share partitions; one that it does not know is no error."""
    answers = await answer_each(request, ctx, "delete share group state", _delete)
    return DeleteShareGroupStateResponse(results=results_of(answers, DeleteStateResult, _changed))


def _delete(
    core: ShareCoordinator, key: SharePartitionKey, part: DeletePartitionData, now_ms: int
) -> CoordinatorResult[None]:
    return core.delete(key)


def _changed(index: int, answer: ApiError | None) -> PartitionResult:
    code, message = error_fields(answer)
    return PartitionResult(partition=index, error_code=code, error_message=message)


@handler(ReadShareGroupStateSummaryRequest)
async def handle_read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, ctx: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    """Read each share partition's state without its batches; the leader epoch of the request is not looked at."""
    answers = await answer_each(request, ctx, "read share group state summary", _read_summary)
    return ReadShareGroupStateSummaryResponse(results=results_of(answers, ReadStateSummaryResult, _summary_read))


def _read_summary(
    core: ShareCoordinator, key: SharePartitionKey, part: PartitionData, now_ms: int
) -> CoordinatorResult[StateSummary]:
    return CoordinatorResult(core.read_summary(key))


def _summary_read(index: int, answer: StateSummary | ApiError) -> SummaryPartitionResult:
    if isinstance(answer, ApiError):
        code, message = error_fields(answer)
        return SummaryPartitionResult(partition=index, error_code=code, error_message=message)
    return SummaryPartitionResult(
        partition=index,
        state_epoch=answer.state_epoch,
        leader_epoch=answer.leader_epoch,
        start_offset=answer.start_offset,
        delivery_complete_count=answer.delivery_complete_count,
    )
