"""``--cores``: a node for each core of the machine, run by one supervisor."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.config import BrokerConfig
from kbroker.config.listeners import EXPLORER_LISTENER, METRICS_LISTENER
from kbroker.errors import FatalError

if TYPE_CHECKING:
    from kbroker.tools.cli.tables_beside import TablesBeside

log = logging.getLogger("kbroker")

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
_MOST: Final = 256


def add_core_arguments(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """The option ``--cores``, and ``--core``, by which the supervisor tells a node which it is."""
    parser.add_argument(
        "--cores",
        type=core_count,
        default=default,
        metavar="N",
        help="run a node for each of N cores of this machine; auto: for each that this process may use",
    )
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)


def core_count(text: str) -> int:
    """``3``, or ``auto`` for all."""
    if text.strip().lower() == "auto":
        return usable_processors()
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST):
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {_MOST}, or auto")
    return int(text)


def usable_processors(quota: Path = _QUOTA) -> int:
    """The processors that this process may use: those it may run on, and no more than its container may use up."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
        return max(1, min(count, -(-int(limit) // int(period))))
    except (OSError, ValueError):  # there is none, or it is "max"
        return count


def own_properties(arguments: argparse.Namespace, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of the node that the command line asks for: those of a file are one node's."""
    if arguments.cores is None:
        return dict(properties)
    from kbroker.config.node_per_core import core_properties

    return core_properties(properties, arguments.core or 1, arguments.cores, socket.gethostname())


def other_properties(arguments: argparse.Namespace, properties: Mapping[str, str]) -> list[dict[str, str]]:
    """The properties of the machine's other nodes, for the first one; else none."""
    if arguments.core != 1:
        return []
    from kbroker.config.node_per_core import core_properties

    machine = socket.gethostname()
    return [core_properties(properties, each, arguments.cores, machine) for each in range(2, arguments.cores + 1)]


def is_machine(arguments: argparse.Namespace) -> bool:
    """Whether there are several nodes to start, and this process is none of them."""
    return arguments.cores is not None and arguments.cores > 1 and arguments.core is None


def is_first(arguments: argparse.Namespace) -> bool:
    """Whether this process is the machine's first node, or its only one."""
    return arguments.core in (None, 1)


def add_tables_argument(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """The option ``--tables``."""
    parser.add_argument(
        "--tables",
        type=Path,
        default=default,
        metavar="FILE",
        help="keep the tables of this file in step with their topics, by a process beside (kbroker table run)",
    )


def tables_of(arguments: argparse.Namespace) -> TablesBeside | None:
    """The tables that are followed beside this node, which is the first of its machine; None without any."""
    if arguments.tables is None or not is_first(arguments):
        return None
    from kbroker.tools.cli.tables_beside import TablesBeside

    return TablesBeside.of(arguments.tables)


def check_left_cores(arguments: argparse.Namespace, config: BrokerConfig) -> None:
    """``FatalError`` if there are partitions of nodes that would not be started: they would be away."""
    if arguments.core is not None:
        return
    cores = arguments.cores or 1
    left: dict[int, list[str]] = {}
    for log_dir in config.log_dirs:
        try:
            names = os.listdir(log_dir)
        except OSError:
            continue  # the node says so
        if not any(name.startswith("core") for name in names):
            continue
        from kbroker.config.node_per_core import DIRECTORY

        for name in names:
            if (match := DIRECTORY.fullmatch(name)) and int(match[1]) > cores:
                left.setdefault(int(match[1]), []).append(os.path.join(log_dir, name))
    if not left:
        return
    known = _partitions_of_brokers(config)
    for core, directories in sorted(left.items()):
        number = config.node_id + core - 1
        count = sum(map(_partitions, directories)) if known is None else known[number]
        if count:
            raise FatalError(
                f"{directories[0]} has {count} partitions of node {number}, which --cores {cores} does not start: start"
                f" with --cores {max(left)}, and move them away by kbroker cluster drain {number}"
            )


def _partitions_of_brokers(config: BrokerConfig) -> Counter[int] | None:
    """Returns how many partitions each broker has a replica of; None if the metadata log of the node cannot tell.

    Only reads. A partition may be a broker's without a directory there: the first record makes it.
    """
    from kbroker.log.disk import OsDisk
    from kbroker.raft_metadata.image.cluster import MetadataReplayError
    from kbroker.raft_metadata.image.loader import ImageLoader
    from kbroker.raft_metadata.raft.loss import whole_batches
    from kbroker.raft_metadata.raft.snapshot import CorruptSnapshot, SnapshotStore
    from kbroker.raft_metadata.storage import METADATA_DIRECTORY
    from kbroker.types import OffsetAndEpoch

    disk, directory = OsDisk(), os.path.join(config.metadata_log_dir, METADATA_DIRECTORY)
    snapshots, loader = SnapshotStore(disk, directory), ImageLoader()
    end = OffsetAndEpoch(0, 0)
    try:
        for end in snapshots.ids()[-1:]:
            loader.load_snapshot(snapshots.read(end).records, end)
        for name in sorted(disk.list_dir(directory)):
            if name.endswith(".log"):
                for _, batch in whole_batches(disk.read_bytes(os.path.join(directory, name))):
                    if batch.base_offset >= end.offset:
                        loader.take(batch)
    except (OSError, CorruptSnapshot, MetadataReplayError):
        return None  # the node says so
    loader.abandon_transaction()
    loader.publish(end)
    image = loader.image
    if not image.brokers:
        return None
    partitions = (each for topic in image.topics.by_id.values() for each in topic.partitions.values())
    return Counter(broker for each in partitions for broker in each.replicas)


def _partitions(directory: str) -> int:
    from kbroker.log.log_dir import parse_log_dir_name
    from kbroker.types import METADATA_TOPIC

    try:
        with os.scandir(directory) as entries:
            found = [parse_log_dir_name(entry.name) for entry in entries if entry.is_dir()]
    except OSError:
        return 0
    return sum(each is not None and each.topic != METADATA_TOPIC for each in found)


def run_machine(
    arguments: argparse.Namespace,
    properties: Mapping[str, str],
    *,
    format_first: Callable[[BrokerConfig], None],
    until_eof: bool = False,
) -> int:
    """Run a node for each core until SIGTERM or SIGINT; the exit code.

    ``format_first`` makes the directories of the first node ready, if that is wanted.
    """
    from kbroker.config.node_per_core import core_properties

    cores, machine = arguments.cores, socket.gethostname()
    config = BrokerConfig.from_properties(properties)
    if not config.is_broker:
        raise FatalError("--cores: this node is a controller alone, which has one core")
    factor = config.default_replication_factor
    if factor > 1 and config.is_controller and len(config.controller_quorum_voters) < 2:
        log.warning("default.replication.factor=%d: UNLESS THERE ARE OTHER MACHINES, this one has all replicas", factor)
    chosen = _chosen_ports(config, cores)
    properties = {**properties, **chosen}
    configs = [
        BrokerConfig.from_properties(core_properties(properties, core, cores, machine)) for core in range(1, cores + 1)
    ]

    def prepare() -> None:
        check_left_cores(arguments, configs[0])
        _format_all(configs, format_first)

    if code := _in_a_child(prepare):
        return code
    from kbroker.tools.cli.child import module_command
    from kbroker.tools.cli.core_supervisor import CoreNode, CoreSupervisor

    words = [*module_command("kbroker"), *sys.argv[1:], "--cores", str(cores)]
    for name, value in chosen.items():
        words += ["-o", f"{name}={value}"]
    nodes = [CoreNode(each.node_id, [*words, "--core", str(core)]) for core, each in enumerate(configs, 1)]
    return CoreSupervisor(nodes, Path(configs[0].log_dirs[0]), until_eof=until_eof).run()


def _chosen_ports(config: BrokerConfig, cores: int) -> dict[str, str]:
    """Ports in the place of 0, for a machine whose nodes have to find one another, also when one starts again."""
    from kbroker.tools.cli.cluster_plan import free_ports

    found: dict[str, str] = {}
    if any(listener.port == 0 for listener in config.listeners):
        controllers = config.controller_listener_names
        own = [
            each
            if each.port
            else each._replace(port=free_ports(1 if each.name in controllers else cores, in_row=True)[0])
            for each in config.listeners
        ]
        found["listeners"] = ",".join(map(str, own))
        for old, new in zip(config.listeners, own, strict=True):
            if old.port == 0 and new.name == controllers[0] and not config.controller_quorum_voters:
                found["controller.quorum.bootstrap.servers"] = str(new).partition("://")[2]
    for name in (METRICS_LISTENER, EXPLORER_LISTENER):
        address = config.raw.get(name, "").rstrip("/")
        if address.endswith(":0"):
            found[name] = f"{address[:-1]}{free_ports(cores, in_row=True)[0]}"
    return found


def _in_a_child(work: Callable[[], None]) -> int:
    """Do something that imports much in a process of its own; its exit code, after it has told of an error."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except FatalError as error:
            from kbroker.tools.cli.common import complain

            complain(str(error))
            code = error.exit_code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _format_all(configs: Sequence[BrokerConfig], format_first: Callable[[BrokerConfig], None]) -> None:
    """Make all directories ready: those after the first node's need what that one has, the id of the cluster."""
    format_first(configs[0])
    import random

    from kbroker.log.checkpoint_files import node_meta_properties
    from kbroker.log.disk import OsDisk
    from kbroker.raft_metadata.storage import format_log_dirs

    disk = OsDisk()
    known = node_meta_properties(disk, configs[0].metadata_log_dir, configs[0].log_dirs)
    for config in configs[1:]:
        format_log_dirs(
            disk,
            config.log_dirs,
            config.metadata_log_dir,
            node_id=config.node_id,
            cluster_id=known.cluster_id,
            rng=random.SystemRandom(),
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=True,
        )
