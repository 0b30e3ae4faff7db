"""The five APIs of the share coordinator (keys 83 to 87): common to all of them. Not an API itself.

Each names partitions of topics, by id, for one share group, and is answered for each share partition. Brokers send them
to one another: partition leaders (read, write) and group coordinators (the others). The rules are those of Kafka's
``ShareCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import trio

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.share_coordinator.coordinator import ShareCoordinator
from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_act_as_node
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import portions
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.runtime.later import Later
from kbroker.types import Uuid

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
