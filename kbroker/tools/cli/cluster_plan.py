"""The nodes of a cluster on one machine: their ports, directories and properties, and how one is started.

``kbroker up`` and ``kbroker.testing.running_cluster`` start the same processes.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.config import BrokerConfig, with_provided
from kbroker.config.listeners import EXPLORER_LISTENER
from kbroker.config.properties_file import format_properties
from kbroker.errors import FatalError
from kbroker.tools.cli.child import module_command
from kbroker.tools.cli.parser import UsageError
from kbroker.types import random_uuid, uuid_to_str

if TYPE_CHECKING:
    from kbroker.tools.cli.secure_setup import SecureSetup

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092
MOST_CONTROLLERS: Final = 3
"""More nodes than these are brokers only: a larger quorum makes every change slower."""

_NOTE: Final = "Written anew at every start of the cluster: set properties with -o NAME=VALUE."

READY: Final = "kbroker ready:"
"""The beginning of the line that a node prints once it serves."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The plan of a node: its ports, directory and properties. ``controller_port`` is None for a node that is a
    broker only."""

    node_id: int
    port: int
    controller_port: int | None
    directory: Path
    properties: Mapping[str, str]
    cores: int = 1
    """Nodes of this one's machine, with ids and ports in a row: a machine is one process for who started it."""

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def properties_file(self) -> Path:
        """Beside the data: what the node is started with."""
        return self.directory.with_name(f"{self.directory.name}.properties")

    @property
    def log_file(self) -> Path:
        """Beside the data: what the node tells."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def command(self) -> list[str]:
        """The command that starts the node. The node stops when its standard input ends, and so with its parent."""
        return self.command_of("kbroker", "start")

    def command_of(self, module: str, *first: str) -> list[str]:
        """The ``command`` of another module that takes the options of ``kbroker start`` after ``first``."""
        cores = ["--cores", str(self.cores)] if self.cores > 1 else []
        return [*module_command(module), *first, *cores, "--until-eof", "-c", str(self.properties_file)]


def cluster_properties(count: int) -> dict[str, str]:
    """The properties in which ``count`` nodes differ from Kafka's defaults; three are as in Apache Kafka's examples.

    Acknowledged with ``acks=all`` means on two nodes of three, and one may be lost at any time.
    """
    replicas, least = (3, 2) if count >= 3 else (count, 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(least),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(least),
        "group.initial.rebalance.delay.ms": "0",
    }


def plan_cluster(
    count: int,
    data: Path,
    *,
    port: int = DEFAULT_PORT,
    cores: int = 1,
    first_id: int = 1,
    properties: Mapping[str, str] | None = None,
    secure: SecureSetup | None = None,
) -> list[NodePlan]:
    """Nodes with ids from ``first_id`` on: clients at ``port`` and the ports after it, controllers at those after them.

    With ``cores`` each stands for a machine with so many nodes. ``port`` 0 takes free ones. ``properties`` go to every
    node, over what is chosen here. Without ``secure`` the listeners are plain.
    """
    if count < 1:
        raise UsageError(f"a cluster needs at least one node, not {count}")
    controllers = min(count, MOST_CONTROLLERS)
    total = count * cores + controllers
    ports = free_ports(total, in_row=cores > 1) if port == 0 else list(range(port, port + total))
    if ports[-1] > 65535:
        raise UsageError(
            f"--port {port}: {count * cores} nodes need {len(ports)} ports from it on, and 65535 is the last"
        )
    # Static voters: their ports may be others at every start.
    of_controllers = ports[count * cores :]
    voters = ",".join(f"{index * cores + first_id}@{HOST}:{of_controllers[index]}" for index in range(controllers))
    plans = []
    for index in range(count):
        node_id, own_port = index * cores + first_id, ports[index * cores]
        directory = node_directory(data, node_id)
        is_controller = index < controllers
        listeners = f"{'PLAINTEXT' if secure is None else 'SASL_SSL'}://{HOST}:{own_port}"
        if is_controller:
            listeners += f",CONTROLLER://{HOST}:{of_controllers[index]}"
        plans.append(
            NodePlan(
                node_id=node_id,
                port=own_port,
                controller_port=of_controllers[index] if is_controller else None,
                directory=directory,
                properties={
                    "process.roles": "broker,controller" if is_controller else "broker",
                    "node.id": str(node_id),
                    "listeners": listeners,
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": voters,
                    "log.dirs": str(directory.absolute()),
                    **cluster_properties(count),
                    **({"broker.rack": f"machine-{index + 1}"} if cores > 1 else {}),
                    **({} if secure is None else secure.node_properties(node_id)),
                    **(properties or {}),
                },
                cores=cores,
            )
        )
    return plans


def plan_another(plans: Sequence[NodePlan], data: Path, secure: SecureSetup | None = None) -> NodePlan:
    """Another node of a cluster that runs, a broker only, with the properties that the first has."""
    first = plans[0].properties
    node_id = max(plan.node_id for plan in plans) + 1
    [port] = free_ports(1)
    directory = node_directory(data, node_id)
    own = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "listeners": f"{'PLAINTEXT' if secure is None else 'SASL_SSL'}://{HOST}:{port}",
        "log.dirs": str(directory.absolute()),
    }
    of_secure = {} if secure is None else secure.node_properties(node_id)
    return NodePlan(node_id, port, None, directory, {**first, **of_secure, **own})


def node_directory(data: Path, node_id: int) -> Path:
    """The log directory of a node of the cluster that is in ``data``."""
    return data / f"node-{node_id}"


def secure_setup(data: Path, count: int, *, cores: int = 1, first_id: int = 1, wanted: bool) -> SecureSetup | None:
    """The parts of a secure cluster of ``count`` nodes, if one is ``wanted``.

    :class:`FatalError` if the directory is another command's, or has another kind of cluster, or one that runs.
    """
    from kbroker.tools.cli.data_owners import SECURITY, check_for_cluster

    check_for_cluster(data, (node_directory(data, index * cores + first_id) for index in range(count)), secure=wanted)
    if not wanted:
        return None
    from kbroker.tools.cli.secure_setup import SecureSetup

    return SecureSetup(data / SECURITY)


def with_explorers(plans: Sequence[NodePlan], port: int) -> list[NodePlan]:
    """The same nodes with explorers at ``port`` and the ports after it, or free ones for 0. Tells how to watch them."""
    count = sum(plan.cores for plan in plans)
    ports = free_ports(count, in_row=count > len(plans)) if port == 0 else range(port, port + count)
    addresses = [f"{HOST}:{each}" for each in ports]
    print(f"kbroker: to watch the nodes: kbroker watch -b {','.join(addresses)}", file=sys.stderr, flush=True)
    return [
        replace(plan, properties={**plan.properties, EXPLORER_LISTENER: f"http://{address}"})
        for plan, address in zip(plans, addresses[:: plans[0].cores], strict=True)
    ]


def free_ports(count: int, *, in_row: bool = False) -> list[int]:
    """Ports of the loopback interface that nobody listens on, all different, one after the other if ``in_row``.

    No process of this user is given any of them again before this process ends, nor an outgoing connection where the
    system leaves such ports: see :mod:`kbroker.tools.cli.port_claims`. :class:`FatalError` if there are not so many.
    """
    from kbroker.tools.cli.port_claims import OWN, listening_ports

    found = OWN.choose(HOST, count, ports=listening_ports(), in_row=in_row)
    if found is None:
        raise FatalError(f"there are no {count} free ports")
    return found


def prepare(plans: list[NodePlan], secure: SecureSetup | None = None) -> None:
    """Check the configurations, write them, and format what is not formatted yet, all with one cluster id.

    A ``secure`` cluster begins with its users. :class:`FatalError` if a configuration is wrong or the directories are
    not those of one cluster.
    """
    configs = [BrokerConfig.from_properties(with_provided(plan.properties)) for plan in plans]
    cluster_id = _cluster_id(configs)
    from kbroker.log.disk import OsDisk
    from kbroker.raft_metadata.storage import format_log_dirs

    users = () if secure is None else secure.records()
    for plan, config in zip(plans, configs, strict=True):
        try:
            plan.directory.parent.mkdir(parents=True, exist_ok=True)
            text = format_properties(plan.properties, _NOTE)
            if secure is not None:
                from kbroker.tools.cli.certificate_files import write_secret

                write_secret(plan.properties_file, text)
            else:
                plan.properties_file.write_text(text)
        except OSError as error:
            raise FatalError(f"cannot write {plan.properties_file}: {error.strerror}") from error
        format_log_dirs(
            OsDisk(),
            config.log_dirs,
            config.metadata_log_dir,
            node_id=config.node_id,
            cluster_id=cluster_id,
            rng=random.SystemRandom(),
            now_ms=time.time_ns() // 1_000_000,
            scram_records=users,
            ignore_formatted=True,
        )


def _cluster_id(configs: list[BrokerConfig]) -> str:
    """That of the directories that are formatted, or a new one."""
    from kbroker.log.checkpoint_files import CorruptCheckpoint, read_meta_properties
    from kbroker.log.disk import OsDisk

    found: dict[str, str] = {}
    for config in configs:
        for directory in sorted({*config.log_dirs, config.metadata_log_dir}):
            try:
                existing = read_meta_properties(OsDisk(), directory)
            except (CorruptCheckpoint, OSError) as error:
                raise FatalError(f"{directory}: {error}") from error
            if existing is None:
                continue
            if existing.node_id != config.node_id:
                raise FatalError(f"{directory} belongs to node {existing.node_id}, not to node {config.node_id}")
            found.setdefault(existing.cluster_id, directory)
    if len(found) > 1:
        told = ", ".join(f"{directory} of {cluster_id}" for cluster_id, directory in sorted(found.items()))
        raise FatalError(f"the directories belong to different clusters: {told}")
    return next(iter(found), uuid_to_str(random_uuid(random.SystemRandom())))
