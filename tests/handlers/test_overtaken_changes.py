"""A change that another one overtakes is decided anew, and its client notices nothing of that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ErrorCode
from kbroker.node.serving.client_quotas import ClientQuotas
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import BrokerRegistration, register_broker
from kbroker.raft_metadata.image import Endpoint
from kbroker.raft_metadata.metadata_version import LATEST_METADATA_VERSION
from kbroker.runtime.budgets import DEFAULTS
from kbroker.security.quotas.entities import QuotaTable
from kbroker.types import Uuid
from kbroker.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kbroker.wire.records.metadata import NoOpRecord
from tests.handlers.metadata_plane import Plane, metadata_plane

PARTITIONS = 300


async def ask_overtaken(plane: Plane, times: int, request: Any, version: int) -> tuple[list[int], int]:
    """Ask for a long change, which records of others overtake so many times. Returns the error codes of its parts, and
    the throttle time."""
    quorum, real, decided, asked = plane.metadata.quorum, plane.metadata, 0, trio.Event()

    async def submit(operation: Callable[[ControllerView], ControllerResult[Any]]) -> Any:
        def counted(view: ControllerView) -> ControllerResult[Any]:
            nonlocal decided
            decided += 1
            asked.set()
            return operation(view)

        return await real.submit(counted)

    async def overtake() -> None:
        await asked.wait()
        while decided <= times:
            level = LATEST_METADATA_VERSION
            quorum.log.append_records([NoOpRecord()], quorum.core.epoch, timestamp_ms=0, metadata_version=level)
            quorum.runner.on_appended()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        if times:
            nursery.start_soon(overtake)
            await trio.testing.wait_all_tasks_blocked()
        plane.services.metadata = SimpleNamespace(submit=submit, image=real.image)
        answer = await plane.ask(request, version)
        plane.services.metadata = real
        nursery.cancel_scope.cancel()
    assert decided == times + 1
    parts = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
    return [each.error_code for each in parts], answer.throttle_time_ms


def created(*names: str, partitions: int, factor: int = 1) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=5000)


@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize("is_strict", [True, False])
async def test_the_quota_of_changes_is_charged_once(tmp_path: Path, times: int, is_strict: bool) -> None:
    names = [f"t{number}" for number in range(PARTITIONS)]
    requests = [
        (created("one", partitions=PARTITIONS), 6),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="one", count=2 * PARTITIONS, assignments=None)], timeout_ms=5000
            ),
            3,
        ),
        (DeleteTopicsRequest(topic_names=names, timeout_ms=5000), 5),
    ]
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(created(*names, partitions=1))
        for request, strict_since in requests:
            quotas = ClientQuotas(plane.services.config, lambda: 0.0)
            quotas.table = QuotaTable({(("client-id", "test"),): {"controller_mutation_rate": 20}})
            plane.services.quotas = SimpleNamespace(clients=quotas)
            errors, throttle_ms = await ask_overtaken(plane, times, request, strict_since - (not is_strict))
            # 220 are saved up. A strict quota lets the last change exceed it, as large as that may be.
            counted = 221 if is_strict and len(errors) > 1 else PARTITIONS
            exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert errors == ([0] * counted + [exceeded] * (PARTITIONS - counted) if len(errors) > 1 else [0])
            assert (throttle_ms > 0) is (counted < PARTITIONS or not is_strict)
            next_one = await ask_overtaken(plane, 0, created("next", partitions=1), 6)
            assert next_one == ([exceeded], (counted - 220) * 50)


async def test_who_has_all_replicas_on_one_machine_is_told_once_they_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with metadata_plane(tmp_path) as plane:
        metadata = plane.metadata
        for node, incarnation in ((1, metadata.incarnation_id), (2, Uuid(bytes([2]) * 16))):
            registration = BrokerRegistration(
                node, incarnation, [Endpoint("PLAINTEXT", "h", 1)], metadata.features(), [incarnation], rack="here"
            )
            await metadata.submit(partial(register_broker, registration=registration))
        assert await ask_overtaken(plane, 2, created("t", partitions=PARTITIONS, factor=2), 6) == ([0], 0)
        refused = await plane.ask(created("a", "b", partitions=5_000, factor=2))
        assert {each.error_code for each in refused.topics} == {ErrorCode.POLICY_VIOLATION}
    assert [each.split()[1] for each in caplog.messages if "ON ONE MACHINE" in each] == ["t"]


@pytest.mark.parametrize("times", [1, 2])
async def test_topics_whose_deletion_was_in_the_log_when_the_rest_was_overtaken_are_deleted(
    tmp_path: Path, times: int
) -> None:
    names = [f"t{number}" for number in range(PARTITIONS)]
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(created(*names, partitions=1))
        plane.services.env.budgets = DEFAULTS._replace(batch_records=50)
        assert await ask_overtaken(plane, times, DeleteTopicsRequest(topic_names=names), 5) == ([0] * PARTITIONS, 0)
        assert not plane.metadata.image.topics.by_name
