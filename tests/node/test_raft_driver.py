"""The driver on a real disk: first start, restart, group commit, snapshots, damage."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.config import BrokerConfig
from kbroker.env import RealEnv
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.node.raft_driver import RaftDriver
from kbroker.raft_metadata.controller.topics import NewTopic
from kbroker.raft_metadata.image import Endpoint, MetadataImage
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.types import Uuid

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"
DIRECTORY_ID = Uuid(bytes(range(16)))


def config(path: Path, **more: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": str(path),
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def directory_id(path: Path) -> Uuid:
    from kbroker.types import uuid_from_str

    lines = dict(line.split("=", 1) for line in (path / "meta.properties").read_text().splitlines() if "=" in line)
    return uuid_from_str(lines["directory.id"])


def format_dir(path: Path) -> None:
    env = RealEnv(seed=1)
    format_log_dirs(
        env.disk,
        [str(path)],
        str(path),
        node_id=1,
        cluster_id=CLUSTER_ID,
        rng=env.rng,
        now_ms=1_700_000_000_000,
        standalone_listeners=[("CONTROLLER", "127.0.0.1", 9093)],
        ignore_formatted=True,
    )


@asynccontextmanager
async def running(path: Path, **more: str) -> AsyncIterator[RaftDriver]:
    env = RealEnv(seed=2)
    driver = RaftDriver(config(path, **more), env, cluster_id=CLUSTER_ID, directory_id=directory_id(path))
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.run)
        await driver.register_broker([Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [directory_id(path)])
        yield driver
        nursery.cancel_scope.cancel()


async def create(driver: RaftDriver, *topics: NewTopic) -> dict[str, Any]:
    return await driver.submit(lambda controller, now_ms: controller.topics.create_topics(topics))


def run(function: Any, *args: Any) -> Any:
    return trio.run(function, *args)


def test_first_start_registers_the_broker(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> MetadataImage:
        async with running(tmp_path) as driver:
            return driver.image

    image = run(main)
    assert image.controller_id == 1
    assert image.features.metadata_version == 30
    assert not image.brokers[1].fenced
    assert image.brokers[1].endpoints["PLAINTEXT"].port == 9092


def test_restart_brings_back_topics_ids_and_configs(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def first() -> MetadataImage:
        async with running(tmp_path) as driver:
            await create(driver, NewTopic("a", 3, 1, (), [("retention.ms", "5")]), NewTopic("b", 1, 1))
            return driver.image

    async def second() -> MetadataImage:
        async with running(tmp_path) as driver:
            return driver.image

    before, after = run(first), run(second)
    assert after.topics == before.topics
    assert after.configs == before.configs
    assert after.offset > before.offset and after.epoch == before.epoch + 1


def test_restart_after_a_snapshot(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def first() -> MetadataImage:
        async with running(tmp_path) as driver:
            await create(driver, NewTopic("a", 3, 1))
            await driver.write_snapshot()
            await create(driver, NewTopic("b", 2, 1))
            return driver.image

    async def second() -> MetadataImage:
        async with running(tmp_path) as driver:
            await create(driver, NewTopic("c", 2, 1))
            await driver.write_snapshot()
            return driver.image

    before, after = run(first), run(second)
    assert set(after.topics.by_name) == {"a", "b", "c"}
    assert after.topics.by_name["a"] == before.topics.by_name["a"]
    assert set(run(second_again, tmp_path).topics.by_name) == {"a", "b", "c"}


async def second_again(path: Path) -> MetadataImage:
    async with running(path) as driver:
        return driver.image


def test_concurrent_changes_share_flushes_and_are_seen_in_order(tmp_path: Path) -> None:
    format_dir(tmp_path)
    flushes = 0

    async def main() -> list[int]:
        nonlocal flushes
        offsets: list[int] = []
        async with running(tmp_path) as driver:
            driver.subscribe(lambda delta, image: offsets.append(image.offset))
            real = driver.env.run_blocking

            async def counted(fn: Any, *args: Any) -> Any:
                nonlocal flushes
                flushes += 1
                return await real(fn, *args)

            driver.env.run_blocking = counted  # type: ignore[method-assign]
            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(create, driver, NewTopic(f"t{number}", 1, 1))
            assert len(driver.image.topics.by_name) == 50
        return offsets

    offsets = run(main)
    assert offsets == sorted(offsets) and len(offsets) == 51
    assert flushes <= 5


def test_an_answer_waits_for_the_disk(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> None:
        async with running(tmp_path) as driver:
            gate = trio.Event()
            real = driver.env.run_blocking

            async def held(fn: Any, *args: Any) -> Any:
                await gate.wait()
                return await real(fn, *args)

            driver.env.run_blocking = held  # type: ignore[method-assign]
            answered = []
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    await create(driver, NewTopic("a", 1, 1))
                    answered.append(True)

                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                assert not answered and "a" not in driver.image.topics.by_name
                gate.set()
            assert answered and "a" in driver.image.topics.by_name

    run(main)


def test_a_failed_flush_stops_the_controller_and_answers_nobody(tmp_path: Path) -> None:
    format_dir(tmp_path)
    errors: list[ErrorCode] = []

    async def main() -> None:
        async with running(tmp_path) as driver:

            async def broken(fn: Any, *args: Any) -> Any:
                raise OSError(5, "Input/output error")

            driver.env.run_blocking = broken  # type: ignore[method-assign]
            try:
                with trio.CancelScope(shield=True):
                    await create(driver, NewTopic("a", 1, 1))
            except ApiError as error:
                errors.append(error.code)

    with pytest.RaisesGroup(FatalError, flatten_subgroups=True, allow_unwrapped=True):
        run(main)
    assert errors == [ErrorCode.NOT_CONTROLLER]


def test_a_disk_that_fails_under_the_quorum_s_own_work_is_told_in_one_line(tmp_path: Path) -> None:
    """Whichever of its tasks meets that first: here the one that writes snapshots."""
    format_dir(tmp_path)
    drivers: list[RaftDriver] = []

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.checkpoint")

    async def main() -> None:
        async with running(tmp_path, metadata_log_max_record_bytes_between_snapshots="1") as driver:
            drivers.append(driver)
            driver._snapshots.write = full  # type: ignore[method-assign]
            await create(driver, NewTopic("a", 1, 1))
            await trio.sleep_forever()

    told = "^metadata log: a.checkpoint No space left on device$"
    with pytest.RaisesGroup(pytest.RaisesExc(FatalError, match=told)):
        run(main)
    with pytest.raises(FatalError, match=told):
        run(drivers[0].wait_ready)


def test_a_thousand_partitions_wait_for_the_disk_as_often_as_one(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> list[int]:
        async with running(tmp_path) as driver:
            run_blocking, waits = driver.env.run_blocking, 0

            async def counted(fn: Any, *args: Any) -> Any:
                nonlocal waits
                waits += 1
                return await run_blocking(fn, *args)

            driver.env.run_blocking = counted  # type: ignore[method-assign]
            counts = []
            for name, partitions in (("small", 1), ("big", 1000)):
                waits = 0
                await create(driver, NewTopic(name, partitions, 1))
                counts.append(waits)
            assert len(driver.image.topics.by_name["big"].partitions) == 1000
            return counts

    small, big = run(main)
    assert 0 < small == big


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    format_dir(tmp_path)
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.RaisesGroup(
        pytest.RaisesExc(FatalError, match="0000000000.checkpoint is damaged"),
        flatten_subgroups=True,
        allow_unwrapped=False,
    ):
        run(second_again, tmp_path)


def test_all_who_wait_for_an_image_see_it(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> None:
        async with running(tmp_path) as driver:

            async def wait(name: str) -> None:
                await driver.wait_for_image(lambda image: name in image.topics.by_name)

            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    for name in ("a", "b", "a"):
                        nursery.start_soon(wait, name)
                    await trio.testing.wait_all_tasks_blocked()
                    await create(driver, NewTopic("a", 1, 1))
                    await create(driver, NewTopic("b", 1, 1))

    run(main)
