"""The nodes of ``kbroker up``, and the table that a terminal shows of them."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from kbroker.tools.diagnosis.facts import ClusterView, ReplicaCounts

if TYPE_CHECKING:
    import trio
    from rich.table import Table

    from kbroker.tools.cli.cluster_plan import NodePlan


class State(Enum):
    """The state of a node's process."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DEAD = "dead"


class Node:
    """A node and its process, which may be a second or third one."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.state = State.STARTING
        self.process: trio.Process | None = None
        self.starts = 0
        self.has_served = False
        """In its present life."""
        self.since = time.monotonic()
        self.how = ""
        """The words for its end."""

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    def enter(self, state: State) -> None:
        """Note the state that the process is in from now on."""
        self.state = state
        self.since = time.monotonic()

    def last_words(self) -> str:
        """The last line of its log, to go with the news of its death."""
        with suppress(OSError):
            with self.plan.log_file.open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 2000))
                lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
            return lines[-1] if lines else ""
        return ""


COLUMNS: Final = ("node", "address", "pid", "state", "for", "controller", "leads", "replicas", "out of sync", "starts")
_STYLES: Final = {State.SERVING: "green", State.DEAD: "bold red", State.STOPPED: "dim"}


def row(node: Node, cluster: ClusterView | None, now: float) -> tuple[list[str], str]:
    """A node's line of the table, and its style."""
    ids = range(node.plan.node_id, node.plan.node_id + node.plan.cores)
    counts = [] if cluster is None else [cluster.counts[each] for each in ids if each in cluster.counts]
    told = ReplicaCounts(*map(sum, zip(*counts, strict=True))) if counts else None
    state, style = node.state.value, _STYLES.get(node.state, "yellow")
    is_fenced = cluster is not None and told is not None and not set(ids) <= cluster.alive
    if node.state is State.SERVING and told is not None and (is_fenced or told.out_of_sync):
        style = "yellow"
        state = "fenced" if is_fenced else state
    if node.state is State.DEAD:
        state = f"dead ({node.how})"
    role = "-"
    if node.plan.controller_port is not None:
        role = "active" if cluster is not None and cluster.controller == node.plan.node_id else "voter"
    cells = [
        str(node.plan.node_id) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}",
        node.plan.address,
        str(node.pid or "-"),
        state,
        _duration(now - node.since),
        role,
        *(["-"] * 3 if told is None else [f"{told.leads:,}", f"{told.replicas:,}", f"{told.out_of_sync:,}"]),
        str(node.starts),
    ]
    return cells, style


def caption(cluster: ClusterView | None) -> str:
    """The line below the table."""
    if cluster is None:
        return "the cluster does not answer"
    from kbroker.client.topics import leaderless, under_replicated

    partitions = sum(len(topic.partitions) for topic in cluster.topics)
    parts = [f"{len(cluster.topics):,} topics, {partitions:,} partitions"]
    if cluster.quorum is not None and cluster.controller is None:
        parts.append("no active controller")
    if under := sum(map(under_replicated, cluster.topics)):
        parts.append(f"{under:,} under-replicated")
    if dead := sum(map(leaderless, cluster.topics)):
        parts.append(f"{dead:,} WITHOUT A LEADER")
    return ", ".join(parts)


def table(rows: list[tuple[list[str], str]], below: str) -> Table:
    """Build the table that the terminal shows."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False, caption=f"{below}    Ctrl-C stops all", caption_justify="left")
    for name in COLUMNS:
        right = name in ("node", "pid", "for", "leads", "replicas", "out of sync", "starts")
        shown.add_column(name, justify="right" if right else "left", no_wrap=True)
    for cells, style in rows:
        shown.add_row(*cells, style=style)
    return shown


def _duration(seconds: float) -> str:
    """``42s``, ``3m``, ``2h``, ``5d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{math.floor(seconds / size)}{unit}"
    return f"{max(0, math.floor(seconds))}s"
