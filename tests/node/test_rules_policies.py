"""Policies that are slow: they have a time for each request, and the event loop has turns between two requests."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kbroker.config import BrokerConfig
from kbroker.config.security.rules import CREATE_TOPIC_POLICY
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.rules.policies import own_policies
from kbroker.node.rules.timed_calls import Job, WaitedCalls
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.rules import NewTopic
from tests.node.node_harness import running_node
from tests.patience import LONG


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_policy_has_its_time_for_all_that_one_request_names() -> None:
    clock = Clock()

    class Patient(WaitedCalls):
        def is_done_in_time(self, job: Job) -> bool:
            """The clock of the test alone says how long a call takes, whenever its thread has a turn."""
            return job.done.acquire(timeout=LONG)

    def slow(topic: NewTopic) -> None:
        clock.seconds += 0.2

    slow.timeout_seconds = 0.5  # type: ignore[attr-defined]
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "process.roles": "controller",
            "listeners": "CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:1",
            CREATE_TOPIC_POLICY: "python:m:slow",
        }
    )
    made: list[WaitedCalls] = []

    def calls(timeout: float, grace: float, own: float | None) -> WaitedCalls:
        made.append(Patient(clock, own or timeout, grace))
        return made[-1]

    policies = own_policies(config, lambda *_: slow, calls)
    assert policies.create_topic is not None and policies.on_request is not None
    for _ in range(20):
        policies.on_request()
        for _ in range(3):
            policies.create_topic("t", 1, 1, None, {})
        for _ in range(3):
            with pytest.raises(ApiError) as caught:
                policies.create_topic("t", 1, 1, None, {})
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert clock.seconds == pytest.approx(20 * 3 * 0.2), "each request has all of the time, and no more"
    made[0].close()


def consenting(topic: NewTopic) -> None:
    """A policy."""


async def test_the_event_loop_has_turns_between_changes_that_policies_judge(tmp_path: Path) -> None:
    turns = 0
    at: list[int] = []

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    def step(view: ControllerView) -> ControllerResult[None]:
        at.append(turns)
        return ControllerResult(None)

    properties = {CREATE_TOPIC_POLICY: f"python:{__name__}:consenting"}
    async with running_node(tmp_path / "node", **properties) as node, trio.open_nursery() as counting:
        counting.start_soon(count)
        async with trio.open_nursery() as changes:
            for _ in range(8):
                changes.start_soon(node.broker.services.metadata.submit, step)
        counting.cancel_scope.cancel()
    assert len(set(at)) == 8
