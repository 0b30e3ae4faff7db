"""Other programs on a node's directories, and directories that are taken from under a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import trio

from kbroker.log.fake_disk import FakeDisk
from kbroker.node.broker import Broker
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.sim.clients import BROKER_PORT, CONTROLLER_PORT
from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin
from kbroker.sim.sim_env import EPOCH_MS, SECOND_DIR, current_env
from kbroker.sim.sim_node import CLUSTER_ID, SimNode, describe_error
from kbroker.sim.world import Violation
from kbroker.tools.cli.start import find_fatal

PARENT: Final = "/up"
DIRECTORIES: Final = (f"{PARENT}/node-1", SECOND_DIR)
"""Where the nodes of ``kbroker up`` are, each on a machine of its own; the first has the metadata log."""
OTHER_CLUSTER_ID: Final = "b3RoZXItY2x1c3Rlci1pZA"


def _format(node: SimNode, directory: str, cluster_id: str, node_id: int) -> None:
    """Format a directory on a node's machine for some node of some cluster."""
    machine = node.machine
    format_log_dirs(
        machine.disk,
        [directory],
        directory,
        node_id=node_id,
        cluster_id=cluster_id,
        rng=machine.rng,
        now_ms=EPOCH_MS,
        ignore_formatted=True,
    )


async def _run_other(node: SimNode, properties: Mapping[str, str], formats: Mapping[str, str]) -> str | None:
    """Run another program on a node's machine; the line that it is refused with, or None once it has served a while.

    ``formats`` are the directories that it formats first, and their cluster ids. :class:`Violation` if it changes
    anything in those of the node.
    """
    name = f"other{node.id}"
    env, disk, changes = node.machine.beside(name), node.machine.disk, list[str]()
    before = disk.on_operation

    def watch(operation: str, path: str) -> None:
        if before is not None:
            before(operation, path)
        if (
            operation != "read"
            and current_env.get() is env
            and f"{path}/".startswith(tuple(f"{d}/" for d in DIRECTORIES))
        ):
            changes.append(f"{operation} {path}")

    async def live() -> None:
        current_env.set(env)
        config = node.config(properties)
        for directory, cluster_id in formats.items():
            _format(node, directory, cluster_id, config.node_id)
        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(Broker(config, env).run)
                await trio.sleep(5)
                nursery.cancel_scope.cancel()

    word = None
    disk.on_operation = watch
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live)
    except Exception as error:
        fatal = find_fatal(error)
        if fatal is None:
            raise Violation(f"a program beside {node.name} has failed: {describe_error(error)}") from error
        word = str(fatal)
    finally:
        disk.on_operation = before
        env.die()
        node.machine.net.stop_host(env.machine.host, silently=False)
    node.cluster.trace.note(f"a program beside {node.name} has ended: {word}")
    if changes:
        raise Violation(f"a program beside {node.name} has changed what is not its own: {changes[:5]}")
    return word


def _other_id(node: SimNode, other_id: int) -> dict[str, str]:
    """Properties of a broker of the cluster that is given the directories of another of its nodes."""
    listener = f"PLAINTEXT://{node.name}:{BROKER_PORT}"
    return {"node.id": str(other_id), "process.roles": "broker", "listeners": listener}


def _alone(node: SimNode, log_dir: str) -> dict[str, str]:
    """Properties of a node of ``kbroker start``."""
    voters = f"{node.id}@other{node.id}:{CONTROLLER_PORT}"
    return {"process.roles": "broker,controller", "controller.quorum.voters": voters, "log.dirs": log_dir}


@scenario(log_dirs=",".join(DIRECTORIES))
async def other_programs(cluster: SimCluster) -> None:
    """Other programs are given a node's directories while it runs or is down: refused, they have changed nothing."""
    rng = cluster.rng
    is_older = rng.random() < 0.5
    if is_older:  # `kbroker start` and `kbroker up` had one directory once
        for node in cluster.nodes.values():
            _format(node, PARENT, OTHER_CLUSTER_ID, node.id)
    partitions = await begin(cluster, partitions=4)
    for _ in range(5):
        node = rng.choice(cluster.serving)
        kind = rng.choice(("the same node", "another node", "a node of another cluster", "one above"))
        if kind != "the same node" and rng.random() < 0.5:
            if rng.random() < 0.5:
                node.kill()
            else:
                await node.stop()
        cluster.trace.note(f"{kind} is started on the directories of {node.name}")
        formats = dict.fromkeys(DIRECTORIES, CLUSTER_ID) if rng.random() < 0.5 else {}
        if kind == "the same node":
            word = await _run_other(node, {}, formats)
        elif kind == "another node":
            other_id = rng.choice([9, *(each for each in cluster.ids if each != node.id)])
            word = await _run_other(node, _other_id(node, other_id), formats)
        elif kind == "a node of another cluster":
            properties = _alone(node, rng.choice(DIRECTORIES)) | {"metadata.log.dir": "/theirs"}
            word = await _run_other(node, properties, {"/theirs": OTHER_CLUSTER_ID})
        else:
            word = await _run_other(node, _alone(node, PARENT), {PARENT: OTHER_CLUSTER_ID})
        if (word is None) != (is_older and kind == "one above") or "\n" in (word or ""):
            raise Violation(f"{kind}, on the directories of {node.name}, was told {word!r}")
        if node.running and node.broker is None:
            raise Violation(f"{node.name} is gone, as another program was started: {cluster.describe()}")
        cluster.start_all()
        await cluster.await_serving()
        await await_progress(cluster)
    await cluster.finish(partitions)


def _content(disk: FakeDisk, path: str) -> Iterator[tuple[str, bytes | None]]:
    """Names and bytes of all that is in a directory."""
    for name in disk.list_dir(path) if disk.is_dir(path) else ():
        inner = f"{path}/{name}"
        yield inner, None if disk.is_dir(inner) else disk.read_bytes(inner)
        yield from _content(disk, inner)


@scenario(
    log_dirs=",".join(DIRECTORIES),
    log_roll_ms="1000",
    log_flush_offset_checkpoint_interval_ms="500",
    replica_high_watermark_checkpoint_interval_ms="500",
)
async def directories_gone(cluster: SimCluster) -> None:
    """A running node's directory is moved away, perhaps for another: it says so, uses neither, and has it again."""
    rng = cluster.rng
    partitions = await begin(cluster, partitions=4)
    for number in range(3):
        await cluster.await_full_isr(cluster.all_partitions())
        node = rng.choice(cluster.serving)
        gone, instead = rng.choice(DIRECTORIES), rng.choice(("nothing", "an empty one", "another's"))
        await cluster.run_for(rng.uniform(0, 5))
        disk = node.machine.disk
        disk.rename(gone, f"{gone}.away")
        if instead == "an empty one":
            disk.make_dir(gone)
        elif instead == "another's":
            _format(node, gone, CLUSTER_ID, 9)
        cluster.trace.note(f"{node.name}: {gone} is away, and there is {instead}")
        node.may_refuse = True
        before = [disk.exists(gone), *_content(disk, gone)]
        client = cluster.client()
        cluster.run_client(partial(client.create_topic, f"new{number}", 4, 3, {}, None))
        await _until_noticed(cluster, node, gone)
        if node.running:
            node.kill()
        if instead == "another's" or gone == DIRECTORIES[0]:
            node.start()
            await cluster.until(lambda node=node: not node.running, 5, f"{node.name} starts without {gone}")  # type: ignore[misc]
        disk = node.machine.disk
        after = [disk.exists(gone), *_content(disk, gone)]
        if after != before:
            made = [each for each in after if each not in before]
            raise Violation(f"{node.name} has made something in {gone}, which is not its own: {made}")
        if disk.exists(gone):
            disk.remove_tree(gone)
        disk.rename(f"{gone}.away", gone)
        node.may_refuse = False
        node.start()
        await cluster.await_serving([node])
        await await_progress(cluster)
    await cluster.finish(partitions)


async def _until_noticed(cluster: SimCluster, node: SimNode, gone: str) -> None:
    """Within a second the node says that a directory is gone, unless it is stopped; without the first it ends."""
    rng = cluster.rng
    if rng.random() < 0.3:
        await cluster.run_for(rng.uniform(0, 0.6))
        if node.running:
            await node.stop()
        return

    def noticed() -> bool:
        broker = node.broker
        return broker is None or any(
            each.path == gone and each.offline is not None for each in broker.log_manager.log_dirs
        )

    await cluster.until(noticed, 1, f"{node.name} does not miss {gone}")
    if gone == DIRECTORIES[0]:
        await cluster.until(lambda: not node.running, 10, f"{node.name} does not end without {gone}")
    await await_progress(cluster, 20)
    if gone != DIRECTORIES[0] and node.broker is None:
        raise Violation(f"{node.name} is gone, with a directory that it has: {cluster.describe()}")
