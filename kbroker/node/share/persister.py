"""Has states of share partitions kept by the share coordinator, on this node or another (``PersisterStateManager``)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import trio

from kbroker.cores.share_state import SharePartitionKey, SharePartitionState, StateSummary
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.peers.peer_pool import NoAnswer, PoolFor
from kbroker.node.share.state_questions import DELETE, INITIALIZE, READ, READ_SUMMARY, WRITE, StateQuestion, answers_of

if TYPE_CHECKING:
    from kbroker.node.share.coordinator_driver import ShareCoordinatorDriver

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

PATIENCE_SECONDS = 30.0
"""The time that a question is repeated while its coordinator moves; about as long as Kafka's five attempts."""
_FIRST_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0

MOST_PARTITIONS = 10_000
"""Share partitions of one request: one about 100,000 is refused."""

_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which a question is repeated. Each of the five may be: it says a state, not a change of one."""


class SharePersister:
    """A `Persister`. Its coordinators are the leaders of the partitions of ``__share_group_state``."""

    def __init__(
        self,
        coordinators: ShareCoordinatorDriver,
        pool_for: PoolFor,
        *,
        node_id: int,
        ensure_topic: Callable[[], Awaitable[object]],
    ) -> None:
        """``ensure_topic`` makes ``__share_group_state`` if need be; it may raise `ApiError`."""
        self._coordinators = coordinators
        self._node_id = node_id
        self._ensure_topic = ensure_topic
        self._peers = pool_for("share-persister")

    async def initialize(
        self, group_id: str, partitions: Mapping[SharePartitionKey, tuple[int, int]]
    ) -> dict[SharePartitionKey, ErrorCode]:
        """Begin share partitions anew, each with a state epoch and a start offset."""
        answers = await self._ask(INITIALIZE, group_id, partitions)
        return _errors(answers)

    async def read(
        self, group_id: str, leader_epochs: Mapping[SharePartitionKey, int]
    ) -> dict[SharePartitionKey, SharePartitionState | ErrorCode]:
        """Read states for leaders with these epochs. Leaders with lower ones are refused from then on."""
        answers = await self._ask(READ, group_id, leader_epochs)
        # The response has no leader epoch: from now on it is the reader's.
        return {
            key: answer if isinstance(answer, ErrorCode) else answer._replace(leader_epoch=leader_epochs[key])
            for key, answer in answers.items()
        }

    async def write(
        self, group_id: str, states: Mapping[SharePartitionKey, SharePartitionState]
    ) -> dict[SharePartitionKey, ErrorCode]:
        """Keep what has changed. FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH: the writer is out of date."""
        answers = await self._ask(WRITE, group_id, states)
        return _errors(answers)

    async def delete(
        self, group_id: str, partitions: Collection[SharePartitionKey]
    ) -> dict[SharePartitionKey, ErrorCode]:
        """Forget share partitions; one that is not known is no error."""
        answers = await self._ask(DELETE, group_id, dict.fromkeys(partitions))
        return _errors(answers)

    async def read_summaries(
        self, group_id: str, leader_epochs: Mapping[SharePartitionKey, int]
    ) -> dict[SharePartitionKey, StateSummary | ErrorCode]:
        """Read states without their batches."""
        return await self._ask(READ_SUMMARY, group_id, leader_epochs)

    async def _ask(
        self, question: StateQuestion[T, R], group_id: str, items: Mapping[SharePartitionKey, T]
    ) -> dict[SharePartitionKey, R | ErrorCode]:
        """Ask for each share partition; again, after a pause, for those whose coordinator moves."""
        answers: dict[SharePartitionKey, R | ErrorCode] = {}
        deadline, delay = trio.current_time() + PATIENCE_SECONDS, _FIRST_DELAY_SECONDS
        missing = dict(items)
        while missing:
            found = await self._ask_once(question, group_id, missing)
            answers.update(found)
            missing = {key: item for key, item in missing.items() if self._is_to_be_repeated(key, answers[key])}
            if trio.current_time() + delay > deadline:
                break
            if missing:
                await trio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
        if missing:
            logger.info("%s of group %s: no answer for %d share partitions", question.name, group_id, len(missing))
        return {key: answers[key] for key in items}

    def _is_to_be_repeated(self, key: SharePartitionKey, answer: object) -> bool:
        """Whether the question may have another answer soon: also for a partition that the coordinator has not seen."""
        if answer is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return self._coordinators.knows(key)
        return answer in _RETRIABLE if isinstance(answer, ErrorCode) else False

    async def _ask_once(
        self, question: StateQuestion[T, R], group_id: str, items: Mapping[SharePartitionKey, T]
    ) -> dict[SharePartitionKey, R | ErrorCode]:
        try:
            await self._ensure_topic()
        except ApiError as error:
            return dict.fromkeys(items, error.code)
        by_broker: dict[int, dict[SharePartitionKey, T]] = {}
        for key, item in items.items():
            by_broker.setdefault(self._coordinators.coordinator_of(key), {})[key] = item
        answers: dict[SharePartitionKey, R | ErrorCode] = {}
        if len(by_broker) == 1:
            ((broker_id, asked),) = by_broker.items()
            await self._ask_broker(broker_id, question, group_id, asked, answers)
        else:
            async with trio.open_nursery() as nursery:
                for broker_id, asked in by_broker.items():
                    nursery.start_soon(self._ask_broker, broker_id, question, group_id, asked, answers)
        return answers

    async def _ask_broker(
        self,
        broker_id: int,
        question: StateQuestion[T, R],
        group_id: str,
        items: Mapping[SharePartitionKey, T],
        answers: dict[SharePartitionKey, R | ErrorCode],
    ) -> None:
        """Ask a coordinator, and put an answer for each item into ``answers``."""
        if broker_id == self._node_id:
            run = self._coordinators.write_each if question.is_write else self._coordinators.run_each
            for key, own in (await run(items, question.step)).items():
                answers[key] = own.code if isinstance(own, ApiError) else own
            return
        answers.update(dict.fromkeys(items, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        left = iter(items.items())
        while some := dict(islice(left, MOST_PARTITIONS)):
            try:
                response = await self._peers.ask(broker_id, question.request(group_id, some))
            except NoAnswer:
                return
            told = answers_of(question, group_id, response)
            answers.update((key, answer) for key, answer in told if key in some)


def _errors(answers: Mapping[SharePartitionKey, ErrorCode | None]) -> dict[SharePartitionKey, ErrorCode]:
    return {key: answer or ErrorCode.NONE for key, answer in answers.items()}
