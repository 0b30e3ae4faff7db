"""The controller and a broker's metadata at 10,000, 100,000 and 1,000,000 partitions on 100 brokers, in this process.

Real are the controller's decisions, the records as bytes, the images, snapshots, and what a broker makes of an image;
there are no sockets, no disks and no logs of topics. Times are processor time of this process.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from benchmarks.workloads import Figures, Workload
from kbroker.config import BrokerConfig
from kbroker.log.log_config import LogConfig
from kbroker.node.replicas.metadata_follower import MetadataFollower
from kbroker.node.replicas.partition_table import PartitionTable
from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller import Controller, ControllerResult
from kbroker.raft_metadata.controller.alter_partition import InSyncReplica, IsrChange, alter_partitions
from kbroker.raft_metadata.controller.broker_changes import leads_any
from kbroker.raft_metadata.controller.brokers import BrokerRegistration, fence_broker, register_broker, unfence_broker
from kbroker.raft_metadata.controller.topics import create_topics
from kbroker.raft_metadata.controller.view import ControllerView
from kbroker.raft_metadata.features import SUPPORTED_FEATURES
from kbroker.raft_metadata.image import Endpoint, MetadataDelta
from kbroker.raft_metadata.image.loader import ImageLoader
from kbroker.raft_metadata.raft.batches import decode_batches, encode_records
from kbroker.raft_metadata.raft.snapshot import decode_snapshot, encode_snapshot
from kbroker.raft_metadata.storage import bootstrap_records
from kbroker.raft_metadata.topics import NewTopic
from kbroker.runtime.budgets import DEFAULTS
from kbroker.types import OffsetAndEpoch, Uuid

BROKERS = 100
REPLICAS = 3
SIZES = (10_000, 100_000, 1_000_000)
OF_A_TOPIC = 100
"""Partitions of a topic; one more topic has a thousand."""
T = TypeVar("T")


class _Nothing:
    """Stands for the parts of a node that would have logs, files and connections: whatever it is asked does nothing."""

    partitions: tuple[()] = ()
    traffic = None
    failed: tuple[()] = ()

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> int:
        return 0


class _Clock:
    """Processor time of steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, step: Callable[[], T]) -> T:
        """Take the time of a step; the collector runs before, as a node's does between its rounds."""
        gc.collect()
        gc.freeze()
        before = time.process_time()
        result = step()
        self.seconds[name] = time.process_time() - before
        return result


class _Cluster:
    """The active controller and what it has written."""

    def __init__(self) -> None:
        config = BrokerConfig.from_properties(
            {"node.id": "1", "process.roles": "broker,controller", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
            | {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": "1@localhost:9093"}
        )
        self.controller = Controller(1, ConfigSchema(config), random.Random(7))
        self.last_batches: list[bytes] = []
        self.apply(lambda view: ControllerResult(None, bootstrap_records()))
        features = {name: (levels.min, levels.max) for name, levels in SUPPORTED_FEATURES.items()}
        for number in range(1, BROKERS + 1):
            registration = BrokerRegistration(
                number,
                Uuid(number.to_bytes(16, "big")),
                [Endpoint("PLAINTEXT", f"broker-{number}", 9092)],
                features,
                [Uuid((1000 + number).to_bytes(16, "big"))],
                rack=f"rack-{number % 10}",
            )
            epoch = self.apply(partial(register_broker, registration=registration))
            self.apply(partial(unfence_broker, broker_id=number, broker_epoch=epoch))

    def apply(self, operation: Callable[[ControllerView], ControllerResult[T]]) -> T:
        """Decide, replay and write down, as ``ControllerLog`` does."""
        controller = self.controller
        result = operation(controller.view())
        decided = [record for record in result.records if record is not None]
        level = controller.image.features.metadata_version or 30
        self.last_batches = []
        for first in range(0, len(decided), DEFAULTS.batch_records):
            records = decided[first : first + DEFAULTS.batch_records]
            base = controller.image.offset + 1
            controller.replay(records, OffsetAndEpoch(controller.image.offset + len(records), 1))
            self.last_batches.append(
                encode_records(records, base_offset=base, epoch=1, timestamp_ms=0, metadata_version=level)
            )
        return result.response

    def create(self, topics: list[NewTopic]) -> None:
        """Create topics, as many in a request as it may have."""
        for first in range(0, len(topics), 90):
            self.apply(partial(create_topics, topics=topics[first : first + 90]))

    def read(self, loader: ImageLoader) -> MetadataDelta:
        """Have a follower of the log read what was written last."""
        for data in self.last_batches:
            for batch in decode_batches(data):
                loader.take(batch)
        published = loader.publish(OffsetAndEpoch(self.controller.image.offset, 1))
        assert published is not None
        return published.delta


def _follower(node_id: int) -> MetadataFollower:
    """A broker's part that follows images, with partitions that have no logs."""
    nothing = cast(Any, _Nothing())
    config = LogConfig()
    return MetadataFollower(
        env=cast(Any, SimpleNamespace(budgets=DEFAULTS)),
        log_manager=nothing,
        table=PartitionTable(node_id),
        progress=nothing,
        checkpoints=nothing,
        log_dirs=nothing,
        throttles=nothing,
        topic_log_config=lambda configs: config,
        start_soon=nothing,
    )


def _size(found: object, seen: set[int]) -> int:
    """Returns the bytes of an object and of all that it holds, each counted once."""
    if id(found) in seen or isinstance(found, type):
        return 0
    seen.add(id(found))
    total = sys.getsizeof(found)
    if isinstance(found, Mapping):
        return total + sum(_size(key, seen) + _size(value, seen) for key, value in found.items())
    if isinstance(found, tuple):
        return total + sum(_size(each, seen) for each in found)
    names = [name for cls in type(found).__mro__ for name in getattr(cls, "__slots__", ())]
    return total + sum(_size(getattr(found, name), seen) for name in names if hasattr(found, name))


def at(partitions: int) -> Figures:
    """Take the times of what happens to a controller and to broker 2, and the memory that both have."""
    cluster, clock = _Cluster(), _Clock()
    topics = [NewTopic(f"topic-{number}", OF_A_TOPIC, REPLICAS) for number in range(partitions // OF_A_TOPIC)]
    clock.time("create", lambda: cluster.create(topics))
    image = cluster.controller.image
    snapshot = clock.time(
        "snapshot", lambda: encode_snapshot(image.records(), now_ms=0, last_contained_log_timestamp=0)
    )
    loader, end = ImageLoader(), OffsetAndEpoch(image.offset + 1, 1)
    clock.time("load", lambda: loader.load_snapshot(decode_snapshot(snapshot).records, end))
    clock.time("elect", lambda: cluster.controller.reset(loader.image))
    follower = _follower(2)
    clock.time("first image", lambda: follower.on_image(MetadataDelta.whole(loader.image), loader.image))

    def apply(step: str, *operations: Callable[[ControllerView], ControllerResult[Any]]) -> None:
        """Have the controller decide, and broker 2 follow."""
        decided, deltas = 0.0, 0.0
        for operation in operations:
            clock.time("decide", lambda operation=operation: cluster.apply(operation))  # type: ignore[misc]
            delta = clock.time("read", lambda: cluster.read(loader))
            clock.time("follow", lambda delta=delta: follower.on_image(delta, loader.image))  # type: ignore[misc]
            decided += clock.seconds["decide"]
            deltas += clock.seconds["read"] + clock.seconds["follow"]
        clock.seconds[step], clock.seconds[f"{step}, followed"] = decided, deltas

    epochs = {each.id: each.epoch for each in image.brokers.values()}
    before = cluster.controller.image.offset
    apply("fence", lambda view: fence_broker(view, 1, epochs[1]))
    changed = cluster.controller.image.offset - before
    apply("unfence", lambda view: unfence_broker(view, 1, epochs[1]))
    apply("topic", lambda view: create_topics(view, [NewTopic("one-more", 1_000, REPLICAS)]))
    topic = cluster.controller.image.topics.by_name["topic-0"]
    state = topic.partitions[0]
    isr = [InSyncReplica(state.leader)]
    change = IsrChange(topic.id, 0, state.leader_epoch, isr, state.leader_recovery_state, state.partition_epoch)
    apply("isr", lambda view: alter_partitions(view, state.leader, epochs[state.leader], [change]))
    clock.time("beat", lambda: leads_any(cluster.controller.view(), 1))
    figures = {
        "loaded_s": clock.seconds["load"] + clock.seconds["elect"],
        "load_us": (clock.seconds["load"] + clock.seconds["elect"]) / partitions * 1e6,
        "snapshot_s": clock.seconds["snapshot"],
        "snapshot_us": clock.seconds["snapshot"] / partitions * 1e6,
        "made_us": clock.seconds["create"] / partitions * 1e6,
        "failover_changes": float(changed),
        "failover_cpu_s": clock.seconds["fence"],
        "failover_us": clock.seconds["fence"] / changed * 1e6,
        "followed_s": clock.seconds["fence, followed"],
        "followed_us": clock.seconds["fence, followed"] / changed * 1e6,
        "unfenced_s": clock.seconds["unfence"],
        "thousand_ms": (clock.seconds["topic"] + clock.seconds["topic, followed"]) * 1e3,
        "isr_ms": (clock.seconds["isr"] + clock.seconds["isr, followed"]) * 1e3,
        "stopping_ms": clock.seconds["beat"] * 1e3,
        "image_bytes": _size(cluster.controller.image.topics, set()) / partitions,
        "snapshot_bytes": len(snapshot) / partitions,
    }
    if partitions <= SIZES[1]:  # hundreds of times the partitions of one broker
        everybody = sorted(epochs)
        apply("stop all", *[lambda view, each=each: fence_broker(view, each, epochs[each]) for each in everybody])
        apply("start all", *[lambda view, each=each: unfence_broker(view, each, epochs[each]) for each in everybody])
        figures["all_back_us"] = (clock.seconds["stop all"] + clock.seconds["start all"]) / partitions * 1e6
        assert all(
            each.leader > 0 for found in loader.image.topics.by_id.values() for each in found.partitions.values()
        )
    return figures


METADATA_WORKLOADS: tuple[Workload, ...] = tuple(
    Workload(
        f"metadata-{size}",
        f"metadata of {size:,} partitions, {BROKERS} brokers",
        lambda bench, server, size=size: at(size),  # type: ignore[misc]
        "alone",
    )
    for size in SIZES
)
