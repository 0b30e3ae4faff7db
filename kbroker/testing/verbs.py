"""The verbs that a broker and a cluster in a test share: waits, moves of leaders and coordinators, requests, a reset.

They ask as an administrator's client does (:meth:`Verbs.client`), and so serve one node as well as several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, Unpack

from kbroker.testing.parameters import (
    Count,
    Group,
    Index,
    Offset,
    Parameter,
    Patience,
    Seconds,
    State,
    Times,
    Topic,
    value_of,
)
from kbroker.testing.seen import (
    ClockSeen,
    GroupSeen,
    LagSeen,
    LeaderSeen,
    NodeAction,
    NodeSeen,
    NotInTime,
    OffsetSeen,
    RequestsSeen,
    ResetDone,
    Wanted,
)
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.security import ClientSecurity
    from kbroker.registry.server import RegistryServer
    from kbroker.testing.faults import Faults
    from kbroker.testing.requests import RequestLog

T = TypeVar("T")

WAIT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02
_LEAST_SECONDS: Final = 1.0
"""The time that a question gets in any case: who waits for 0 seconds asks once."""


class Verbs:
    """The verbs of one node and of several alike. They may be called from any thread but the broker's."""

    _request_log: RequestLog | None = None

    registry: RegistryServer | None = None
    """The schema registry beside it, if one runs."""

    is_cluster: ClassVar[bool] = False
    """Whether there are several nodes, each a process of its own."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client's ``bootstrap.servers``."""
        raise NotImplementedError

    @property
    def faults(self) -> Faults:
        """The faults of all nodes."""
        raise NotImplementedError

    def faults_of(self, node: int) -> Faults:
        """The faults of one node; ``NotThere``."""
        raise NotImplementedError

    @contextmanager
    def client(self, timeout: float = 30.0) -> Iterator[Client]:
        """A small synchronous client that may do everything."""
        raise NotImplementedError
        yield

    @property
    def nodes_seen(self) -> list[NodeSeen]:
        """The nodes, whether they run or not."""
        raise NotImplementedError

    def add_node(self) -> NodeSeen:
        """Add a broker to the cluster, and return once it serves. ``CannotNow`` where there is no cluster."""
        raise NotImplementedError

    def change_node(self, node: Index, action: NodeAction) -> NodeSeen:
        """Do to a node of a cluster what ``action`` says; ``NotThere``.

        "stop" is a clean stop, "kill" a SIGKILL; "start" returns once the node serves. "pause" has the process stand
        still with its connections open (SIGSTOP), "resume" has it go on.
        """
        raise NotImplementedError

    @property
    def registry_url(self) -> str:
        """Where a schema registry serves Confluent's API; it is started when it is first asked for.

        Its schemas are in the topic ``_schemas``. Needs ``kbroker[registry]``.
        """
        if self.registry is None:
            from kbroker.registry.server import RegistryServer

            self.registry = RegistryServer(self.bootstrap_servers, security=self._own_security()).start()
        return self.registry.url

    def _stop_registry(self) -> None:
        if self.registry is not None:
            self.registry.stop()
            self.registry = None

    def _own_security(self) -> ClientSecurity | None:
        """The way in of the test itself; None where everybody may."""
        raise NotImplementedError

    # --- the clock

    def advance(self, seconds: Seconds) -> None:
        """Move the clocks of all nodes ahead; return once they have done what was due by then."""
        raise NotImplementedError

    def stop_clock(self) -> None:
        """Have the clocks of all nodes stand, until they are moved (:meth:`advance`) or go on (:meth:`start_clock`).

        What waits for time waits: a Fetch without records, too, until some come.
        """
        raise NotImplementedError

    def start_clock(self) -> None:
        """Have the clocks go on from where they stand."""
        raise NotImplementedError

    @property
    def clock(self) -> ClockSeen:
        """The clocks of the nodes."""
        raise NotImplementedError

    # --- waits

    def wait_for_group(
        self,
        group: Group,
        *,
        state: State | None = None,
        members: Index | None = None,
        timeout: Patience = WAIT_SECONDS,
    ) -> GroupSeen:
        """Wait until a group of any type is in a state ("Stable", "Empty", in any case), with so many members.

        A group that is not there has the state "Dead". ``NotInTime`` tells the group as it was seen last;
        ``ValueError`` for a state that no group can have.
        """
        value_of(Parameter("state", State | None, needed=False), state)
        wanted = [text for text in (state, None if members is None else f"{members} members") if text is not None]

        def is_there(seen: GroupSeen) -> bool:
            if not wanted:
                return bool(seen.state)
            is_state = state is None or (seen.state or "Dead").lower() == state.lower()
            return is_state and (members is None or len(seen.members) == members)

        from kbroker.testing.asking import group_seen

        what = f"group {group} is not {' with '.join(wanted) or 'there'}"
        return self._until(lambda client: group_seen(client, group), is_there, what, timeout)

    def wait_for_committed(
        self, group: Group, topic: Topic, offset: Offset, *, partition: Index = 0, timeout: Patience = WAIT_SECONDS
    ) -> OffsetSeen:
        """Wait until a group has committed an offset of a partition, or a higher one; of a share group its start."""
        from kbroker.testing.asking import committed_by

        def ask(client: Client) -> OffsetSeen:
            found = committed_by(client, group).get(TopicPartition(topic, partition), -1)
            return OffsetSeen(topic, partition, found)

        what = f"group {group} has not committed {offset} of {topic}-{partition}"
        return self._until(ask, lambda seen: seen.offset >= offset, what, timeout)

    def wait_for_end(
        self, topic: Topic, offset: Offset, *, partition: Index = 0, timeout: Patience = WAIT_SECONDS
    ) -> OffsetSeen:
        """Wait until the log of a partition ends at an offset, or a higher one, for those who read committed records.

        A partition that is not there ends at -1.
        """
        from kbroker.testing.asking import end_of

        def ask(client: Client) -> OffsetSeen:
            return OffsetSeen(topic, partition, end_of(client, TopicPartition(topic, partition)))

        what = f"{topic}-{partition} does not end at {offset}"
        return self._until(ask, lambda seen: seen.offset >= offset, what, timeout)

    def wait_until_drained(self, topic: Topic, group: Group, *, timeout: Patience = WAIT_SECONDS) -> LagSeen:
        """Wait until a group has committed all that is in a topic now or by then; ``NotThere`` without the topic.

        What is in an open transaction does not count, nor do the control records at the end of one.
        """
        from kbroker.testing.asking import lag_of
        from kbroker.tools.diagnosis.log_gaps import LogGaps

        what = f"group {group} has not read all of {topic}"
        gaps = LogGaps()
        return self._until(
            lambda client: lag_of(client, topic, group, gaps), lambda seen: not any(seen.lag.values()), what, timeout
        )

    def _until(self, ask: Callable[[Client], T], holds: Callable[[T], bool], what: str, timeout: float) -> T:
        """Ask until the answer is as wanted. ``NotInTime`` with the last answer, or the last error, in its text."""
        from kbroker.client.errors import ClientError

        deadline = time.monotonic() + timeout
        seen: T | None = None
        problem = ""
        while True:
            try:
                with self.client(max(_LEAST_SECONDS, deadline - time.monotonic())) as client:
                    while True:
                        seen, problem = ask(client), ""
                        if holds(seen):
                            return seen
                        if time.monotonic() >= deadline:
                            break
                        time.sleep(_POLL_SECONDS)
            except ClientError as error:  # of a node that dies meanwhile, too
                problem = str(error)
            if time.monotonic() >= deadline:
                raise NotInTime(f"{what} after {timeout:g} s: {problem or seen}", None if problem else seen)
            time.sleep(_POLL_SECONDS)

    # --- moves

    def move_leader(
        self, topic: Topic, partition: Index = 0, *, to: Index | None = None, timeout: Patience = WAIT_SECONDS
    ) -> LeaderSeen:
        """Have another node lead a partition: ``to``, or (None) the next replica in sync.

        The node becomes the preferred leader, and a replica if it is none. ``NotThere`` without the partition or node;
        ``CannotNow`` if there is no other replica.
        """
        from kbroker.testing.asking import choose_leader, elected

        target = TopicPartition(topic, partition)
        with self.client(max(_LEAST_SECONDS, timeout)) as client:
            chosen = choose_leader(client, target, to)
        return self._until(
            lambda client: elected(client, target, chosen),
            lambda seen: seen.leader == chosen,
            f"{target} is not led by {chosen}",
            timeout,
        )

    def move_coordinator(
        self, group: Group, *, to: Index | None = None, timeout: Patience = WAIT_SECONDS
    ) -> LeaderSeen:
        """Have another node coordinate a group: the leader of its partition of ``__consumer_offsets`` moves."""
        from kbroker.testing.asking import OFFSETS_TOPIC, partition_of_group

        with self.client(max(_LEAST_SECONDS, timeout)) as client:
            partition = partition_of_group(client, group)
        return self.move_leader(OFFSETS_TOPIC, partition, to=to, timeout=timeout)

    # --- topics

    def create_topic(
        self,
        topic: Topic,
        *,
        partitions: Count | None = None,
        replicas: Count | None = None,
        configs: dict[str, str] | None = None,
    ) -> None:
        """Create a topic, by default with the nodes' own numbers of partitions and replicas; all nodes know it then."""
        from kbroker.testing.asking import create_topic

        with self.client(WAIT_SECONDS) as client:
            create_topic(client, topic, partitions or -1, replicas or -1, configs or {})
        self._await_news(WAIT_SECONDS)

    def _await_news(self, timeout: float) -> None:
        """Return once all nodes that serve know what any of them knows."""

    def empty_topic(self, topic: Topic) -> dict[int, int]:
        """Delete all records of a topic, also of a compacted one; the log start offset of each partition."""
        return self.faults.delete_records(topic)

    # --- requests

    @property
    def request_log(self) -> RequestLog:
        """The requests that clients have made, once they are recorded (:meth:`record_requests`)."""
        if self._request_log is None:
            from kbroker.testing.requests import RequestLog

            self._request_log = RequestLog()
        return self._request_log

    def record_requests(self, on: bool = True) -> None:
        """Record the requests of all clients from now on, or no more, and forget those that there are.

        While it is on, a request costs more, and is served after those before it on its connection.
        """
        raise NotImplementedError

    def requests(self, **wanted: Unpack[Wanted]) -> RequestsSeen:
        """The requests that clients have made and had answers to; ``CannotNow`` while they are not recorded.

        ``next`` of the answer is the ``after`` of the next question.
        """
        self._await_requests()
        return self.request_log.find(wanted)

    def wait_for_requests(
        self, count: Times = 1, *, timeout: Patience = WAIT_SECONDS, **wanted: Unpack[Wanted]
    ) -> RequestsSeen:
        """Wait until there are so many such requests, or more (see :meth:`requests`)."""
        return self.request_log.wait(count, timeout, wanted)

    def _await_requests(self) -> None:
        """Return once all nodes have told of the requests that they have answered."""

    # --- all

    def reset(self, *, topics: bool = True, timeout: Patience = 60.0) -> ResetDone:
        """Have everything be as at the beginning: no faults, and no records of them or of requests.

        All nodes run, and so do their clocks, which stay as far ahead as they are. With ``topics`` all topics but
        internal ones are deleted, and all groups; a group with members is kept. Quotas go then, too, and the configs
        that brokers, groups and subscriptions to metrics were given while they ran.
        """
        self.faults.clear()
        self._reset_nodes(timeout)
        self.faults.record.clear()
        if self.request_log.is_on:
            self.record_requests(False)
        if not topics:
            return ResetDone([], [], [])
        from kbroker.testing.asking import delete_all, forget_settings

        with self.client(max(_LEAST_SECONDS, timeout)) as client:
            done = delete_all(client)
            forget_settings(client)
        self._await_news(max(_LEAST_SECONDS, timeout))
        return done

    def _reset_nodes(self, timeout: float) -> None:
        """Have the nodes and the clock be as at the beginning."""
        raise NotImplementedError
