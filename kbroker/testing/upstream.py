"""A foreign cluster with faults before it: ``kbroker faults --upstream``.

Clients connect to this process, which passes them on (`passage`). What is asked of the cluster itself (waits, moves of
leaders, topics) is asked of its brokers, past all faults; what only a broker can do to itself is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

import trio

from kbroker.client import Client, ClientError
from kbroker.client.errors import known
from kbroker.client.topics import TopicDescription, delete_records, delete_topics, describe_topics, recreate_topic
from kbroker.runtime.serving_thread import ServingThread
from kbroker.testing.faults import Arguments, Fault, Faults
from kbroker.testing.intercepted import Decision
from kbroker.testing.link import OWN_CLIENT_ID
from kbroker.testing.local_faults import rule_of
from kbroker.testing.parameters import Index, Patience, Seconds
from kbroker.testing.passage import HOST, SASL, Door, Gate
from kbroker.testing.seen import CannotNow, ClockSeen, NodeAction, NodeSeen, NotThere, ResetDone
from kbroker.testing.verbs import WAIT_SECONDS, Verbs
from kbroker.types import ZERO_UUID, TopicPartition, Uuid
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from kbroker.client.security import ClientSecurity

_METADATA_VERSION: Final = 12
_STATUS_SECONDS: Final = 5.0


class UpstreamCluster(ServingThread, Verbs):
    """A foreign cluster, and the doors to its brokers; a context manager.

    ``bootstrap`` is where it is, ``port`` that of the door to the first broker, the others' follow (0: free ones);
    ``security``: how this process itself comes in (without TLS), None where no listener asks who it is.
    """

    is_cluster = True

    def __init__(self, bootstrap: str, *, port: int = 0, security: ClientSecurity | None = None) -> None:
        self._bootstrap = bootstrap
        self._port = port
        self._security = security
        self._faults = Faults(_Doors(self, None))
        self._faults_of: dict[int, Faults] = {}
        self._gate: Gate | None = None
        super().__init__("upstream")

    # --- its life

    def start(self) -> Self:
        """Serve, with a door for each broker that is there now. ``ClientError``: nobody answers."""
        with self.client() as client:
            client.all_nodes()
            self._metadata_version = client.any_broker(client.deadline()).version_for(
                MetadataRequest, _METADATA_VERSION
            )
            self._first = {broker.id: (broker.host, broker.port) for broker in client.brokers.values()}
        return super().start()

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        async with trio.open_nursery() as nursery:
            self._gate = Gate(nursery, self._metadata_version, self._prepare)
            for number, (node, address) in enumerate(sorted(self._first.items())):
                await self._gate.door_to(node, address, self._port and self._port + number)
            on_ready()
            await trio.sleep_forever()

    def _prepare(self, door: Door) -> None:
        """Have a new door do what the others do."""
        for fault in self._faults.active:
            if fault.node in (None, door.node):
                _add(door, fault)
        self._observe(door)

    def at_doors(self, do: Callable[[Door], object], node: int | None = None) -> None:
        """Do something at the door of a node (None: at all), between two steps of what passes there."""
        assert self._loop is not None and self._gate is not None
        doors = self._gate.doors

        def each() -> None:
            for door in list(doors.values()):
                if node in (None, door.node):
                    do(door)

        trio.from_thread.run_sync(each, trio_token=self._loop[0])

    # --- Verbs

    @property
    def _doors(self) -> Mapping[int, Door]:
        return {} if self._gate is None else dict(self._gate.doors)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port,...`` of all doors."""
        return ",".join(f"{HOST}:{door.port}" for door in self._doors.values())

    @property
    def faults(self) -> Faults:
        """The faults at every door."""
        return self._faults

    def faults_of(self, node: int) -> Faults:
        """The faults at the door to one broker; ``NotThere``."""
        self._check_node(node)
        if node not in self._faults_of:
            self._faults_of[node] = Faults(_Doors(self, node), within=self._faults, node=node)
        return self._faults_of[node]

    def _check_node(self, node: int) -> None:
        if node not in self._doors:
            raise NotThere(f"there is no node {node}")

    @contextmanager
    def client(self, timeout: float = 30.0) -> Iterator[Client]:
        """A small synchronous client of the cluster itself, whom no fault meets."""
        known = [door.address for door in self._doors.values()]
        with Client(self._bootstrap, client_id=OWN_CLIENT_ID, timeout=timeout, security=self._security) as client:
            client.bootstrap += known
            yield client

    @property
    def nodes_seen(self) -> list[NodeSeen]:
        """The brokers that have a door; "down" are those that the others do not name."""
        try:
            with self.client(_STATUS_SECONDS) as client:
                there = client.all_nodes()
        except ClientError:
            there = []
        states = {node: "running" if node in there else "down" for node in self._doors}
        return [NodeSeen(node, states[node], f"{HOST}:{door.port}") for node, door in sorted(self._doors.items())]

    def add_node(self) -> NodeSeen:
        raise _not_ours("its nodes")

    def change_node(self, node: Index, action: NodeAction) -> NodeSeen:
        self._check_node(node)
        raise _not_ours("its nodes")

    def advance(self, seconds: Seconds) -> None:
        raise _not_ours("its clocks")

    def stop_clock(self) -> None:
        raise _not_ours("its clocks")

    def start_clock(self) -> None:
        raise _not_ours("its clocks")

    @property
    def clock(self) -> ClockSeen:
        raise _not_ours("its clocks")

    def create_topic(self, topic: str, **options: Any) -> None:
        """Create a topic; all brokers know it then (:meth:`Verbs.create_topic`)."""
        super().create_topic(topic, **options)
        self._await_topic(topic, lambda found: ZERO_UUID not in found)

    def _await_topic(self, topic: str, is_known: Callable[[set[Uuid]], bool]) -> None:
        """Return once the ids that all brokers have of a topic, 0 of none, are as wanted."""

        def ask(client: Client) -> set[Uuid]:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            nodes = client.all_nodes()
            answers = client.ask_nodes(dict.fromkeys(nodes, request), highest=_METADATA_VERSION)
            return {ZERO_UUID if t.error_code else t.topic_id for answer in answers.values() for t in answer.topics}

        self._until(ask, is_known, f"not all brokers know of {topic}", WAIT_SECONDS)

    def record_requests(self, on: bool = True) -> None:
        """Record the requests of all clients that pass (:meth:`Verbs.record_requests`)."""
        self.request_log.clear()
        self.request_log.is_on = on
        self.at_doors(self._observe)

    def _observe(self, door: Door) -> None:
        log = self.request_log

        async def tell(request: Mapping[str, Any]) -> None:
            log.add(request)

        door.interceptor.observe(tell if log.is_on else None)

    def reset(self, *, topics: bool = True, timeout: Patience = 60.0) -> ResetDone:
        """Undo all faults, and forget what is recorded; with ``topics`` it is refused (``CannotNow``)."""
        if topics:
            raise _not_ours("its topics", ": reset with topics=false, and delete what is yours by its name")
        return super().reset(topics=False, timeout=timeout)

    def _reset_nodes(self, timeout: float) -> None:
        pass

    # --- records and topics, by the administrator's requests

    def delete_records(self, topic: str, partition: int | None, before: int | None) -> dict[int, int]:
        """Move log starts (:meth:`Faults.delete_records`)."""
        with self.client(WAIT_SECONDS) as client:
            there = [each.partition for each in _described(client, topic).partitions]
            if partition is not None and partition not in there:
                raise NotThere(f"there is no {topic}-{partition}")
            wanted = there if partition is None else [partition]
            at = dict.fromkeys((TopicPartition(topic, index) for index in wanted), -1 if before is None else before)
            return {key.partition: start for key, start in known(delete_records(client, at)).items()}

    def delete_topic(self, topic: str, partition: None) -> dict[int, int]:
        """Delete a topic; all brokers know of it then."""
        with self.client(WAIT_SECONDS) as client:
            for error in delete_topics(client, [topic]).values():
                if error is not None:
                    raise error
        self._await_topic(topic, lambda found: found == {ZERO_UUID})
        return {}

    def recreate_topic(self, topic: str, partition: None, count: int | None) -> dict[int, int]:
        """Delete a topic and create it as it was; all brokers know the new one then."""
        with self.client(WAIT_SECONDS) as client:
            before = recreate_topic(client, topic, count)
        self._await_topic(topic, lambda found: len(found) == 1 and found.isdisjoint({ZERO_UUID, before}))
        return {}


def _not_ours(what: str, instead: str = "") -> CannotNow:
    return CannotNow(f"this stands before a foreign cluster: {what} are not kbroker's to change{instead}")


def _described(client: Client, topic: str) -> TopicDescription:
    return known(describe_topics(client, [topic]))[topic]


def _add(door: Door, fault: Fault) -> None:
    token = trio.lowlevel.current_trio_token()

    def decide(number: int, decision: Decision) -> bool:
        with suppress(trio.RunFinishedError):
            return trio.from_thread.run_sync(door.interceptor.decide, number, decision, trio_token=token)
        return False

    door.interceptor.remove(fault.number)  # a door that opens meanwhile has it already
    door.interceptor.add(rule_of(fault, decide, door.node))


class _Doors:
    """The doors where faults act, all or that of one broker; a ``faults.Host``."""

    _BY_REQUEST: Final = ("delete_records", "delete_topic", "recreate_topic")

    def __init__(self, cluster: UpstreamCluster, node: int | None) -> None:
        self._cluster = cluster
        self._node = node

    def add(self, fault: Fault) -> None:
        """Have it act from the next request on; ``CannotNow`` of requests that are not seen here."""
        if fault.match.followers:
            raise CannotNow("the brokers of a foreign cluster replicate among themselves: no follower asks here")
        if fault.match.api is not None and fault.match.api.key in SASL:
            raise CannotNow(f"logins pass unread to a foreign cluster: there are no faults of {fault.match.api.name}")
        self._cluster.at_doors(lambda door: _add(door, fault), self._node)

    def remove(self, fault: Fault) -> None:
        """Have it act no more."""
        self._cluster.at_doors(lambda door: door.interceptor.remove(fault.number), self._node)

    def act(self, name: str, topic: str, partition: int | None, arguments: Arguments) -> dict[int, int]:
        """Have the brokers do what an administrator can ask for; ``CannotNow`` for the rest."""
        if name not in self._BY_REQUEST:
            raise CannotNow(f"this stands before a foreign cluster: {name} is done inside of a broker, and no request")
        done: dict[int, int] = getattr(self._cluster, name)(topic, partition, **arguments)
        return done
