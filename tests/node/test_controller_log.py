"""The controller's log on a real disk: first start, restart, group commit, snapshots, damage."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.node.controller.controller_client import InProcess
from kbroker.node.controller.leader_balancer import LeaderBalancer
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import BrokerRegistration, fence_broker, unfence_broker
from kbroker.raft_metadata.controller.brokers import register_broker as register_broker_again
from kbroker.raft_metadata.controller.policies import NO_POLICIES, Policies
from kbroker.raft_metadata.controller.sessions import Heartbeat
from kbroker.raft_metadata.controller.topics import create_topics
from kbroker.raft_metadata.image import Endpoint, MetadataImage
from kbroker.raft_metadata.metadata_version import LATEST_METADATA_VERSION
from kbroker.raft_metadata.raft.messages import Vote
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.raft_metadata.topics import NewTopic
from kbroker.runtime.budgets import DEFAULTS, Budgets
from kbroker.runtime.env import RealEnv
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records.metadata import NoOpRecord, RegisterBrokerRecord
from tests.handlers.metadata_plane import register_broker
from tests.patience import SHORT

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


def format_dir(path: Path, levels: dict[str, int] | None = None) -> None:
    env = RealEnv(seed=1)
    format_log_dirs(
        env.disk,
        [str(path)],
        str(path),
        node_id=1,
        cluster_id=CLUSTER_ID,
        rng=env.rng,
        now_ms=1_700_000_000_000,
        feature_levels=levels,
        standalone_listeners=[("CONTROLLER", "127.0.0.1", 9093)],
        ignore_formatted=True,
    )


def no_services() -> Any:
    raise AssertionError("nothing is asked of this node's own handlers")


@asynccontextmanager
async def running(
    path: Path, *, budgets: Budgets = DEFAULTS, policies: Policies = NO_POLICIES, **more: str
) -> AsyncIterator[MetadataPlane]:
    env = RealEnv(seed=2, budgets=budgets)
    own = directory_id(path)
    metadata = MetadataPlane(
        config(path, **more),
        env,
        env.network,
        cluster_id=CLUSTER_ID,
        directory_id=own,
        services=no_services,
        policies=policies,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        await register_broker(metadata, [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [own])
        yield metadata
        nursery.cancel_scope.cancel()


async def create(metadata: MetadataPlane, *topics: NewTopic) -> dict[str, Any]:
    return await metadata.submit(lambda view: create_topics(view, topics))


def run(function: Any, *args: Any) -> Any:
    return trio.run(function, *args)


def test_first_start_registers_the_broker(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> MetadataImage:
        async with running(tmp_path) as metadata:
            return metadata.image

    image = run(main)
    assert image.controller_id == 1
    assert image.features.metadata_version == LATEST_METADATA_VERSION
    assert not image.brokers[1].fenced
    assert image.brokers[1].endpoints["PLAINTEXT"].port == 9092


def test_restart_brings_back_topics_ids_and_configs(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def first() -> MetadataImage:
        async with running(tmp_path) as metadata:
            await create(metadata, NewTopic("a", 3, 1, (), [("retention.ms", "5")]), NewTopic("b", 1, 1))
            return metadata.image

    async def second() -> MetadataImage:
        async with running(tmp_path) as metadata:
            return metadata.image

    before, after = run(first), run(second)
    assert after.topics == before.topics
    assert after.configs == before.configs
    assert after.offset > before.offset and after.epoch == before.epoch + 1


def test_restart_after_a_snapshot(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def first() -> MetadataImage:
        async with running(tmp_path) as metadata:
            await create(metadata, NewTopic("a", 3, 1))
            await metadata.snapshots.write()
            await create(metadata, NewTopic("b", 2, 1))
            return metadata.image

    async def second() -> MetadataImage:
        async with running(tmp_path) as metadata:
            await create(metadata, NewTopic("c", 2, 1))
            await metadata.snapshots.write()
            return metadata.image

    before, after = run(first), run(second)
    assert set(after.topics.by_name) == {"a", "b", "c"}
    assert after.topics.by_name["a"] == before.topics.by_name["a"]
    assert set(run(second_again, tmp_path).topics.by_name) == {"a", "b", "c"}


async def second_again(path: Path) -> MetadataImage:
    async with running(path) as metadata:
        return metadata.image


def test_concurrent_changes_share_flushes_and_are_seen_in_order(tmp_path: Path) -> None:
    format_dir(tmp_path)
    flushes = 0

    async def main() -> list[int]:
        nonlocal flushes
        offsets: list[int] = []
        async with running(tmp_path) as metadata:
            metadata.subscribe(lambda delta, image: offsets.append(image.offset))
            real = metadata.env.run_blocking

            async def counted(fn: Any, *args: Any) -> Any:
                nonlocal flushes
                flushes += 1
                return await real(fn, *args)

            metadata.env.run_blocking = counted  # type: ignore[method-assign]
            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(create, metadata, NewTopic(f"t{number}", 1, 1))
            assert len(metadata.image.topics.by_name) == 50
        return offsets

    offsets = run(main)
    assert offsets == sorted(offsets) and len(offsets) == 51
    assert flushes <= 5


def test_an_answer_waits_for_the_disk(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> None:
        async with running(tmp_path) as metadata:
            gate = trio.Event()
            real = metadata.env.run_blocking

            async def held(fn: Any, *args: Any) -> Any:
                await gate.wait()
                return await real(fn, *args)

            metadata.env.run_blocking = held  # type: ignore[method-assign]
            answered = []
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    await create(metadata, NewTopic("a", 1, 1))
                    answered.append(True)

                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                assert not answered and "a" not in metadata.image.topics.by_name
                gate.set()
            assert answered and "a" in metadata.image.topics.by_name

    run(main)


def test_a_failed_flush_stops_the_controller_and_answers_nobody(tmp_path: Path) -> None:
    format_dir(tmp_path)
    errors: list[ErrorCode] = []

    async def main() -> None:
        async with running(tmp_path) as metadata:

            async def broken(fn: Any, *args: Any) -> Any:
                raise OSError(5, "Input/output error")

            metadata.env.run_blocking = broken  # type: ignore[method-assign]
            try:
                with trio.CancelScope(shield=True):
                    await create(metadata, NewTopic("a", 1, 1))
            except ApiError as error:
                errors.append(error.code)

    with pytest.RaisesGroup(FatalError, flatten_subgroups=True, allow_unwrapped=True):
        run(main)
    assert errors == [ErrorCode.NOT_CONTROLLER]


def test_a_disk_that_fails_under_the_quorum_s_own_work_is_told_in_one_line(tmp_path: Path) -> None:
    """Whichever of its tasks meets that first: here the one that writes snapshots."""
    format_dir(tmp_path)
    planes: list[MetadataPlane] = []

    def broken(snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "a.checkpoint")

    async def main() -> None:
        async with running(tmp_path, metadata_log_max_record_bytes_between_snapshots="1") as metadata:
            planes.append(metadata)
            metadata.snapshots._store.write = broken  # type: ignore[method-assign]
            with suppress(ApiError):  # its own commit may still be under way when the disk fails
                await create(metadata, NewTopic("a", 1, 1))
            await trio.sleep_forever()

    told = "^metadata log: a.checkpoint Input/output error$"
    with pytest.RaisesGroup(pytest.RaisesExc(FatalError, match=told)):
        run(main)
    with pytest.raises(FatalError, match=told):
        run(planes[0].wait_ready)


def test_a_thousand_partitions_wait_for_the_disk_as_often_as_one(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> list[int]:
        async with running(tmp_path) as metadata:
            run_blocking, waits = metadata.env.run_blocking, 0

            async def counted(fn: Any, *args: Any) -> Any:
                nonlocal waits
                waits += 1
                return await run_blocking(fn, *args)

            metadata.env.run_blocking = counted  # type: ignore[method-assign]
            counts = []
            for name, partitions in (("small", 1), ("big", 1000)):
                waits = 0
                await create(metadata, NewTopic(name, partitions, 1))
                counts.append(waits)
            assert len(metadata.image.topics.by_name["big"].partitions) == 1000
            return counts

    small, big = run(main)
    assert 0 < small == big


def test_a_start_removes_what_is_left_of_unfinished_snapshots(tmp_path: Path) -> None:
    format_dir(tmp_path)
    directory = tmp_path / "__cluster_metadata-0"
    left = [directory / f"00000000000000000040-0000000007.checkpoint{suffix}" for suffix in (".part", ".tmp")]
    foreign = directory / "mine.checkpoint.part"
    for path in (*left, foreign):
        path.write_bytes(b"the first bytes")

    async def main() -> None:
        async with running(tmp_path):
            assert not any(path.exists() for path in left)
            assert foreign.exists(), "no snapshot has such a name"

    run(main)


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    format_dir(tmp_path)
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.raises(FatalError, match=r"0000000000.checkpoint is damaged"):
        run(second_again, tmp_path)


def test_a_damaged_snapshot_is_passed_over_for_the_one_before_it(tmp_path: Path) -> None:
    """The latest two are kept, with the log from the older one on. Without either, the only voter says so."""
    format_dir(tmp_path)

    async def main() -> None:
        async with running(tmp_path) as metadata:
            for name in ("a", "b", "c"):
                await create(metadata, NewTopic(name, 1, 1))
                await metadata.snapshots.write()
            await create(metadata, NewTopic("d", 1, 1))

    run(main)
    directory = tmp_path / "__cluster_metadata-0"
    older, newest = sorted(directory.glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-9])
    assert set(run(second_again, tmp_path).topics.by_name) == {"a", "b", "c", "d"}
    assert (directory / f"{newest.name}.set-aside").exists() and not newest.exists()
    data = bytearray(older.read_bytes())
    data[len(data) // 2] ^= 1
    older.write_bytes(data)
    for _ in range(2):  # again, too
        with pytest.raises(FatalError, match=r"lost part of the metadata log.*no whole snapshot holds what was before"):
            run(second_again, tmp_path)


def test_all_who_wait_for_an_image_see_it(tmp_path: Path) -> None:
    format_dir(tmp_path)

    async def main() -> None:
        async with running(tmp_path) as metadata:

            async def wait(name: str) -> None:
                await metadata.wait_for_image(lambda image: name in image.topics.by_name)

            with trio.fail_after(SHORT):
                async with trio.open_nursery() as nursery:
                    for name in ("a", "b", "a"):
                        nursery.start_soon(wait, name)
                    await trio.testing.wait_all_tasks_blocked()
                    await create(metadata, NewTopic("a", 1, 1))
                    await create(metadata, NewTopic("b", 1, 1))

    run(main)


def test_a_record_that_its_level_cannot_express_fails_its_change_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    format_dir(tmp_path, {"metadata.version": 16})
    broker = RegisterBrokerRecord(broker_id=9, broker_epoch=9, log_dirs=[Uuid(bytes(range(16)))])

    async def main() -> None:
        async with running(tmp_path) as metadata:
            before = metadata.image
            with pytest.raises(ApiError) as caught:
                await metadata.submit(lambda view: ControllerResult(None, [broker]))
            assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            assert metadata.image == before == metadata.controller.image
            await create(metadata, NewTopic("a", 1, 1))
            assert set(metadata.image.topics.by_name) == {"a"} and set(metadata.image.brokers) == {1}

    run(main)
    assert "metadata.version 16 cannot express" in caplog.text


async def test_a_broker_with_more_partitions_than_a_batch_has_records_is_fenced(tmp_path: Path) -> None:
    """8 MiB are the most that a batch may have: the records of 130,000 partitions, which one broker can well have."""
    format_dir(tmp_path)
    async with running(tmp_path) as metadata:
        await register_broker(metadata, [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [directory_id(tmp_path)])
        for number in range(3):
            topics = [NewTopic(f"t-{number}-{each}", 1_000, 1) for each in range(4)]
            await metadata.submit(lambda view, topics=topics: create_topics(view, topics))  # type: ignore[misc]
        epoch, first = metadata.image.brokers[1].epoch, metadata.image.offset + 1
        await metadata.submit(lambda view: fence_broker(view, 1, epoch))
        assert metadata.image.brokers[1].fenced
        leaders = {
            each.leader for topic in metadata.image.topics.by_name.values() for each in topic.partitions.values()
        }
        assert leaders == {-1}
        batches = list(metadata.quorum.log.read(first, metadata.image.offset + 1))
        sizes = [len(list(batch.records)) for batch in batches]
        assert sum(sizes) == 12_001 and max(sizes) <= 10_000


def leaders(image: MetadataImage) -> set[int]:
    return {each.leader for each in image.topics.by_name["t"].partitions.values()}


async def unfence_half(metadata: MetadataPlane) -> None:
    """A topic of a broker that is unfenced, and not elected yet."""
    await metadata.submit(lambda view: create_topics(view, [NewTopic("t", 3, 1)]))
    epoch = metadata.image.brokers[1].epoch
    await metadata.submit(lambda view: fence_broker(view, 1, epoch))
    await metadata.submit(lambda view: ControllerResult(None, islice(unfence_broker(view, 1, epoch).records, 1)))
    assert leaders(metadata.image) == {-1}


async def test_the_next_controller_makes_the_elections_that_the_last_has_left(tmp_path: Path) -> None:
    """Those with a broker that has come may be several batches, and a controller ends after the first."""
    format_dir(tmp_path)

    async with running(tmp_path) as metadata:
        await unfence_half(metadata)
    async with running(tmp_path) as metadata, trio.open_nursery() as nursery:
        nursery.start_soon(LeaderBalancer(metadata, config(tmp_path)).run)
        with trio.fail_after(SHORT):
            await metadata.wait_for_image(lambda image: leaders(image) == {1})
        nursery.cancel_scope.cancel()


async def test_a_controller_that_is_elected_again_makes_the_elections_that_it_has_left(tmp_path: Path) -> None:
    format_dir(tmp_path)
    async with running(tmp_path) as metadata, trio.open_nursery() as nursery:
        nursery.start_soon(LeaderBalancer(metadata, config(tmp_path)).run)
        await trio.testing.wait_all_tasks_blocked()  # it has looked for what the last one has left
        await unfence_half(metadata)
        vote = Vote(metadata.quorum.core.epoch + 1, ReplicaKey(9), OffsetAndEpoch(0, 0), pre_vote=False)
        await metadata.ask_quorum(vote)
        with trio.fail_after(SHORT):
            await metadata.wait_for_image(lambda image: leaders(image) == {1})
        nursery.cancel_scope.cancel()


async def test_the_epoch_of_a_broker_is_where_its_registration_stands(tmp_path: Path) -> None:
    """Records that take its former life out of ISRs may come in a batch before: who has read those has not read it."""
    format_dir(tmp_path)
    async with running(tmp_path) as metadata:
        endpoints, own = [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], directory_id(tmp_path)
        await register_broker(metadata, endpoints, [own])
        await metadata.submit(lambda view: create_topics(view, [NewTopic("t", 3, 1)]))
        again = BrokerRegistration(1, Uuid(bytes([9]) * 16), endpoints, metadata.features(), [own])
        epoch = await metadata.submit(lambda view: register_broker_again(view, again))
        [batch] = metadata.quorum.log.read(epoch, epoch + 1)
        records = list(batch.records)
        assert batch.base_offset < epoch and isinstance(records[epoch - batch.base_offset], RegisterBrokerRecord)


async def test_a_large_change_goes_in_turns_and_is_seen_by_none_before_it_is_whole(tmp_path: Path) -> None:
    format_dir(tmp_path)
    budgets = DEFAULTS._replace(short_turns_seconds=math.inf)
    async with running(tmp_path, budgets=budgets) as metadata, trio.open_nursery() as nursery:
        await register_broker(metadata, [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [directory_id(tmp_path)])
        first, outcomes = metadata.quorum.log.end_offset, []

        async def make() -> None:
            outcomes.append((await create(metadata, NewTopic("t", 1_000, 1)))["t"])

        nursery.start_soon(make)
        nursery.start_soon(make)  # decides when the first is decided
        turns = 0
        while "t" not in metadata.controller.image.topics.by_name:
            assert metadata.quorum.log.end_offset == first
            turns += 1
            await trio.lowlevel.checkpoint()
        assert turns > 10
        with trio.fail_after(SHORT):
            while len(outcomes) < 2:
                await trio.sleep(0)
        assert [isinstance(each, ApiError) for each in outcomes] in ([False, True], [True, False])
        [batch] = metadata.quorum.log.read(first, metadata.image.offset + 1)
        assert len(list(batch.records)) == 1_001
        assert metadata.image is metadata.controller.image


async def test_the_turns_of_a_change_grow_and_all_that_waited_for_it_are_decided_at_once(tmp_path: Path) -> None:
    format_dir(tmp_path)
    budgets = DEFAULTS._replace(short_turns_seconds=0)
    async with running(tmp_path, budgets=budgets) as metadata, trio.open_nursery() as nursery:
        await register_broker(metadata, [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [directory_id(tmp_path)])
        decided: list[bool] = []

        def small(view: ControllerView) -> ControllerResult[None]:
            decided.append("t" in view.image.topics.by_name)
            return ControllerResult(None)

        nursery.start_soon(create, metadata, NewTopic("t", 3_000, 1))
        await trio.lowlevel.checkpoint()
        for _ in range(30):
            nursery.start_soon(metadata.submit, small)
        turns = 0
        while "t" not in metadata.controller.image.topics.by_name:
            turns += 1
            await trio.lowlevel.checkpoint()
        assert 3 <= turns <= 10  # 47 short ones
        rounds = 0
        while len(decided) < 30:
            rounds += 1
            await trio.lowlevel.checkpoint()
        assert all(decided) and rounds <= 3


async def test_a_change_that_is_overtaken_is_decided_anew(tmp_path: Path) -> None:
    """A new voter's record, say, comes into the log while it is under way: the broker's epoch is no more its offset."""
    format_dir(tmp_path)
    async with running(tmp_path) as metadata, trio.open_nursery() as nursery:
        endpoints, own = [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], directory_id(tmp_path)
        await register_broker(metadata, endpoints, [own])
        await create(metadata, NewTopic("t", 300, 1))
        again = BrokerRegistration(1, Uuid(bytes([9]) * 16), endpoints, metadata.features(), [own])
        log, begun = metadata.quorum.log, trio.Event()

        async def overtake() -> None:
            await begun.wait()
            log.append_records([NoOpRecord()], log.last_epoch, timestamp_ms=0, metadata_version=LATEST_METADATA_VERSION)

        def register(view: ControllerView) -> ControllerResult[int]:
            begun.set()
            return register_broker_again(view, again)

        nursery.start_soon(overtake)
        await trio.testing.wait_all_tasks_blocked()
        epoch = await metadata.submit(register)
        records = [
            each for batch in log.read(epoch, log.end_offset) for each in enumerate(batch.records, batch.base_offset)
        ]
        assert dict(records)[epoch].broker_epoch == epoch  # type: ignore[attr-defined]
        assert metadata.image.brokers[1].epoch == epoch


async def test_a_change_that_is_under_way_ends_with_its_controller(tmp_path: Path) -> None:
    format_dir(tmp_path)
    async with running(tmp_path) as metadata, trio.open_nursery() as nursery:
        await register_broker(metadata, [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [directory_id(tmp_path)])
        before, end_offset, begun = metadata.controller.image, metadata.quorum.log.end_offset, trio.Event()

        async def fail() -> None:
            await begun.wait()
            metadata.controller_log.fail()

        def decide(view: ControllerView) -> ControllerResult[Any]:
            begun.set()
            return create_topics(view, [NewTopic("t", 300, 1)])

        nursery.start_soon(fail)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ApiError) as caught:
            await metadata.submit(decide)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert metadata.controller.image is before and metadata.quorum.log.end_offset == end_offset


@pytest.mark.parametrize("fenced_meanwhile", [False, True])
async def test_an_unfencing_that_is_overtaken_still_elects(tmp_path: Path, fenced_meanwhile: bool) -> None:
    """The first of several batches is in the log, and with it the broker unfenced. ``fenced_meanwhile``: while its
    heartbeat waited for a turn."""
    format_dir(tmp_path)
    budgets = DEFAULTS._replace(batch_records=100)
    async with running(tmp_path, budgets=budgets) as metadata, trio.open_nursery() as nursery:
        await create(metadata, NewTopic("t", 300, 1))
        epoch, log, begun = metadata.image.brokers[1].epoch, metadata.quorum.log, trio.Event()

        def fence(view: ControllerView) -> ControllerResult[None]:
            begun.set()
            return fence_broker(view, 1, epoch)

        async def overtake() -> None:
            while metadata.controller.image.topics.by_name["t"].partitions[0].leader_epoch < 2:
                await trio.lowlevel.checkpoint()
            log.append_records([NoOpRecord()], log.last_epoch, timestamp_ms=0, metadata_version=LATEST_METADATA_VERSION)

        nursery.start_soon(overtake)
        if fenced_meanwhile:
            nursery.start_soon(metadata.submit, fence)
            await begun.wait()
            assert not metadata.controller.image.brokers[1].fenced
        else:
            await metadata.submit(fence)
        state = await metadata.heartbeat(Heartbeat(1, epoch, epoch), InProcess("CONTROLLER"))
        partitions = metadata.image.topics.by_name["t"].partitions.values()
        assert not state.is_fenced and {each.leader for each in partitions} == {1}


async def test_a_request_that_is_refused_as_a_whole_leaves_nothing_however_far_it_was_decided(tmp_path: Path) -> None:
    """The first topic is a full batch, and whole turns; the second is too much."""
    format_dir(tmp_path)
    budgets = DEFAULTS._replace(turn_records=1_000, short_turns_seconds=math.inf)
    async with running(tmp_path, budgets=budgets) as metadata:
        end_offset = metadata.quorum.log.end_offset
        with pytest.raises(ApiError) as caught:
            await create(metadata, NewTopic("most", 9_999, 1), NewTopic("one", 1, 1))
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        assert metadata.quorum.log.end_offset == end_offset and not metadata.controller.image.topics.by_name


async def test_between_the_turns_of_a_change_policies_get_no_new_time_and_are_asked_in_one_turn_each(
    tmp_path: Path,
) -> None:
    format_dir(tmp_path)
    begun: list[int] = []
    asked: list[int] = []
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await trio.lowlevel.checkpoint()

    policies = Policies(lambda *topic: asked.append(turn), None, lambda: begun.append(turn))
    async with running(tmp_path, policies=policies) as metadata, trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        epoch = metadata.image.brokers[1].epoch
        begun.clear()
        async with trio.open_nursery() as changes:
            changes.start_soon(create, metadata, *(NewTopic(f"t{number}", 1, 1) for number in range(300)))
            while len(asked) < 100:
                await trio.lowlevel.checkpoint()
            assert len(begun) == 1
            for number in range(5):
                changes.start_soon(create, metadata, NewTopic(f"small-{number}", 1, 1))
                changes.start_soon(metadata.heartbeat, Heartbeat(1, epoch, epoch), InProcess("CONTROLLER"))
            while len(asked) < 200:
                await trio.lowlevel.checkpoint()
            assert len(begun) == 1
        assert len(asked) == 305 and len(set(asked[300:])) == 5
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("leaves", ["the requester", "the node"])
async def test_a_change_that_its_requester_or_its_node_leaves_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, leaves: str
) -> None:
    """The requester's time is over, or the node is asked to stop, between two turns of it."""
    format_dir(tmp_path)
    answers: list[object] = []
    async with trio.open_nursery() as requesters, running(tmp_path) as metadata:
        begun, own = trio.Event(), trio.CancelScope()

        async def ask(scope: trio.CancelScope) -> None:
            def decide(view: ControllerView) -> ControllerResult[Any]:
                begun.set()
                return create_topics(view, [NewTopic("t", 1_000, 1)])

            with scope:
                try:
                    answers.append(await metadata.submit(decide))
                except ApiError as error:
                    answers.append(error.code)

        requesters.start_soon(ask, own)
        await begun.wait()
        assert "t" not in metadata.controller.image.topics.by_name
        if leaves == "the requester":
            own.cancel()
            await create(metadata, NewTopic("next", 1, 1))  # has its turn, and the first one's is over
            assert len(metadata.image.topics.by_name["t"].partitions) == 1_000
    assert answers == ([] if leaves == "the requester" else [ErrorCode.NOT_CONTROLLER])
    image = await second_again(tmp_path)
    assert {name: len(topic.partitions) for name, topic in image.topics.by_name.items()} == (
        {"t": 1_000, "next": 1} if leaves == "the requester" else {}
    )
