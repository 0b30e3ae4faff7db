"""Asks the leaders of partitions, wherever they are by now, and tries again what others lead meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeVar

from kbroker.client.cluster import FIRST_BACKOFF, Client
from kbroker.client.errors import ClientError, ConnectionFailed, RequestTimedOut, ResponseError
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.schema import Request

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")


def ask_leaders(
    client: Client,
    wanted: Mapping[TopicPartition, V],
    make: Callable[[Mapping[TopicPartition, V]], Request[R]],
    read: Callable[[R], Iterable[tuple[TopicPartition, int, T]]],
    *,
    highest: int | None = None,
) -> dict[TopicPartition, T | ResponseError]:
    """Ask the leader of each partition; partition -> what the answer holds, or the error that remained.

    ``make`` builds the request for the partitions of one leader; ``read`` gives of its response (partition, error
    code, content). What fails because a leader has moved or a broker is gone is tried again until the deadline;
    a partition that does not exist is not waited for.
    """
    deadline = client.deadline()
    results: dict[TopicPartition, T | ResponseError] = {}
    left = dict(wanted)
    pause = FIRST_BACKOFF
    while True:
        _learn_leaders(client, left, results, deadline)
        problem: ClientError | None = None
        by_leader: dict[int, dict[TopicPartition, V]] = {}
        for partition, value in left.items():
            leader = client.leader(partition)
            if leader is not None:
                by_leader.setdefault(leader, {})[partition] = value
            elif partition not in results:
                problem = ResponseError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        for leader, group in by_leader.items():
            # One after the other: the time of an answer is small, and a broker that is gone harms only its own.
            try:
                response = client.ask_together({leader: make(group)}, deadline, highest)[leader]
            except (ConnectionFailed, RequestTimedOut) as error:
                problem = error
                for partition in group:
                    client.forget_leader(partition)
                continue
            problem = _take_answers(client, read(response), group, results) or problem
        left = {partition: value for partition, value in left.items() if partition not in results}
        if not left:
            return results
        if time.monotonic() + pause >= deadline:
            return results | _given_up(left, problem)
        pause = client.back_off(pause)


def _take_answers(
    client: Client,
    answers: Iterable[tuple[TopicPartition, int, T]],
    asked: Container[TopicPartition],
    results: dict[TopicPartition, T | ResponseError],
) -> ResponseError | None:
    """Note the content of each answer, or an error that will not pass; the last error, of either kind."""
    problem = None
    for partition, code, content in answers:
        if partition not in asked or partition in results:
            continue
        if not code:
            results[partition] = content
            continue
        problem = ResponseError(code, f"partition {partition}")
        client.forget_leader(partition)
        if not problem.retriable:
            results[partition] = problem
    return problem


def _given_up(left: Iterable[TopicPartition], problem: ClientError | None) -> dict[TopicPartition, ResponseError]:
    """The last error for each partition without an answer; raises one that is of no partition."""
    if not isinstance(problem, ResponseError):
        raise problem or RequestTimedOut("no answer in time")
    return {partition: ResponseError(problem.code, f"partition {partition}") for partition in left}


def _learn_leaders(
    client: Client,
    left: Mapping[TopicPartition, object],
    results: dict[TopicPartition, T | ResponseError],
    deadline: float,
) -> None:
    """Ask for leaders that are not known; what does not exist gets its error."""
    unknown = {partition.topic for partition in left if client.leader(partition) is None}
    if not unknown:
        return
    exist: set[TopicPartition] = set()
    errors: dict[str, int] = {}
    for topic in client.refresh(unknown, deadline):
        name = topic.name or ""
        errors[name] = topic.error_code
        exist.update(TopicPartition(name, partition.partition_index) for partition in topic.partitions)
    for partition in left:
        if partition.topic not in unknown or partition in exist:
            continue
        code = errors.get(partition.topic, 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,) or not ResponseError(code).retriable:
            what = f"topic {partition.topic}" if errors.get(partition.topic) else f"partition {partition}"
            results[partition] = ResponseError(code, what)
