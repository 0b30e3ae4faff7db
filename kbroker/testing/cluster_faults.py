"""Faults of nodes that are processes of their own: which nodes act, and what is done where."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast

from kbroker.client import Client, ClientError
from kbroker.errors import ApiError, ErrorCode
from kbroker.testing.faults import Arguments, Fault
from kbroker.testing.link import CALL_SECONDS, Link, LinkClosed

_AGAIN_SECONDS = 0.05
_AGAIN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # a block of producer ids, while there is no active controller
)


class FaultyNode(Protocol):
    """A :class:`~kbroker.testing.cluster_node.ClusterNode`, as far as faults reach it."""

    @property
    def _link(self) -> Link | None: ...
    @property
    def _link_is_up(self) -> bool: ...
    def _add_fault(self, fault: Fault) -> None: ...
    def _remove_fault(self, fault: Fault) -> None: ...


class FaultyCluster(Protocol):
    """A :class:`~kbroker.testing.cluster.RunningCluster`, as far as faults need it."""

    @property
    def nodes(self) -> Sequence[FaultyNode]: ...
    @property
    def controller(self) -> FaultyNode:
        """The active controller, waited for while there is none."""

    def node(self, node_id: int) -> FaultyNode:
        """The node with this id; ``KeyError`` if there is none."""

    def client(self) -> AbstractContextManager[Client]:
        """A client of the nodes that run."""


class ClusterHost:
    """Where the faults of a cluster act, or of one of its nodes; a ``faults.Host``.

    A node that does not run has them before it serves its next request, a paused one soon after it is resumed. What is
    done to records and topics is done at the leaders, of whichever node the faults are.
    """

    def __init__(self, cluster: FaultyCluster, nodes: Sequence[FaultyNode]) -> None:
        self._cluster = cluster
        self._nodes = nodes

    def add(self, fault: Fault) -> None:
        """Add a fault at every node."""
        try:
            for node in self._nodes:
                node._add_fault(fault)
        except BaseException:
            self.remove(fault)
            raise

    def remove(self, fault: Fault) -> None:
        """Remove a fault at every node."""
        for node in self._nodes:
            node._remove_fault(fault)

    def act(self, name: str, topic: str, partition: int | None, arguments: Arguments) -> dict[int, int]:
        """Do an action of ``broker_actions`` at whoever leads, and again while there is another leader to be found.

        What a leader did that died before it told is not done twice. If the controller dies over ``recreate_topic``,
        though, the topic may be made anew twice, or be gone (UNKNOWN_TOPIC_OR_PARTITION). TimeoutError where there is
        no leader within 60 s.
        """
        deadline = time.monotonic() + CALL_SECONDS
        arguments = dict(arguments)
        lost = False
        while True:
            try:
                if name == "offset_gap" and "producer_id" not in arguments:
                    arguments["producer_id"] = _act(
                        self._cluster.controller, "next_producer_id", topic, None, {}, deadline
                    )[0]
                if name in ("delete_topic", "recreate_topic"):
                    return self._at_controller(name, topic, arguments, deadline, again=lost)
                return self._at_replicas(name, topic, partition, arguments, deadline)
            except (LinkClosed, ClientError) as error:
                reason: BaseException = error
                lost = True
            except ApiError as error:
                if error.code not in _AGAIN:
                    raise
                reason = error
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} of {topic} was not done within {CALL_SECONDS:g} s: {reason!r}")
            time.sleep(_AGAIN_SECONDS)

    def _at_controller(
        self, name: str, topic: str, arguments: Arguments, deadline: float, *, again: bool
    ) -> dict[int, int]:
        try:
            _act(self._cluster.controller, name, topic, None, arguments, deadline)
        except ApiError as error:
            done = again and name == "delete_topic" and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not done:
                raise
        topic_id = self._topic_id(topic)
        for node in self._cluster.nodes:  # all of them know, before the test goes on
            if node._link_is_up:
                _act(node, "await_topic", topic, None, {"topic_id": topic_id}, deadline)
        return {}

    def _topic_id(self, topic: str) -> str | None:
        link = self._cluster.controller._link
        if link is None:
            raise LinkClosed
        return cast("str | None", link.call("topic_id", topic=topic))

    def _at_replicas(
        self, name: str, topic: str, partition: int | None, arguments: Arguments, deadline: float
    ) -> dict[int, int]:
        with self._cluster.client() as client:
            [found] = client.refresh([topic])
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        entries = [entry for entry in found.partitions if partition is None or entry.partition_index == partition]
        if not entries:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}")
        places: dict[int, list[int]] = {}
        for entry in entries:
            if entry.leader_id < 0:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"nobody leads {topic}-{entry.partition_index}")
            for node_id in entry.isr_nodes if name == "compact" else [entry.leader_id]:
                if node_id == entry.leader_id or self._cluster.node(node_id)._link_is_up:
                    places.setdefault(node_id, []).append(entry.partition_index)
        leaders = {entry.partition_index: entry.leader_id for entry in entries}
        done: dict[int, int] = {}
        for node_id, partitions in sorted(places.items()):
            try:
                answers = _act(self._cluster.node(node_id), name, topic, partitions, arguments, deadline)
            except ApiError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                # It has not heard yet of what others know; or the topic has gone, as they will tell next.
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {node_id} does not know {topic}") from None
            done |= {index: answer for index, answer in answers.items() if leaders[index] == node_id}
        return done


def _act(
    node: FaultyNode, name: str, topic: str, partitions: Sequence[int] | None, arguments: Arguments, deadline: float
) -> dict[int, int]:
    link = node._link  # another thread may end the node meanwhile
    if link is None:
        raise LinkClosed
    left = max(0.1, deadline - time.monotonic())
    answer = link.call("act", left, name=name, topic=topic, partitions=partitions, arguments=arguments)
    return dict(cast("list[tuple[int, int]]", answer))
