"""A cluster is looked at: addresses first, then questions to the brokers that were reached, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from kbroker.client.cluster import Client
from kbroker.client.configs import ResourceType, describe_many
from kbroker.client.errors import ClientError, ResponseError
from kbroker.client.nodes import (
    ClusterBroker,
    ClusterDescription,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    features_of,
)
from kbroker.client.open_transactions import OPEN_STATES, OpenTransaction, hanging_among, open_in
from kbroker.client.quotas import EntityQuotas, describe_quotas
from kbroker.client.security import ClientSecurity
from kbroker.client.topics import MAX_TIMESTAMP, TopicDescription, list_offsets, list_topics
from kbroker.client.transactions import TransactionDescription, describe_transaction, list_transactions, producers_of
from kbroker.tools.diagnosis.asking import ask_quorum
from kbroker.tools.diagnosis.facts import Quorum, damaged_replicas
from kbroker.tools.doctor.facts import BrokerFacts, ClusterFacts, ListenerFacts, LogDirFacts, TopicFacts
from kbroker.tools.doctor.gather.groups import GroupLooks
from kbroker.tools.doctor.gather.listeners import Probe
from kbroker.types import TopicPartition
from kbroker.wire.errors import EncodeError, WireError

T = TypeVar("T")
Progress = Callable[[str], None]
"""Hears what is looked at now."""

BROKER_KEYS: Final = (
    "authorizer.class.name",
    "auto.create.topics.enable",
    "default.replication.factor",
    "group.max.session.timeout.ms",
    "group.min.session.timeout.ms",
    "message.max.bytes",
    "offsets.retention.minutes",
    "offsets.topic.replication.factor",
    "replica.fetch.response.max.bytes",
    "share.coordinator.state.topic.replication.factor",
    "socket.request.max.bytes",
    "transaction.max.timeout.ms",
    "transaction.state.log.replication.factor",
)
TOPIC_KEYS: Final = (
    "cleanup.policy",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.ms",
    "unclean.leader.election.enable",
)

_LOGGERS: Final = ("kbroker",)
"""Names of loggers that only kbroker has."""

_THREADS: Final = 8
_MOST_PARTITIONS: Final = 5_000
"""Partitions whose newest record and producers are asked for."""


MOST_TRANSACTIONS: Final = 300


class ReachedClient(Client):
    """A client that asks no other brokers, so that no answer waits for them. Their partitions have no leader here."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        reached: Collection[int],
        *,
        client_id: str,
        timeout: float,
        security: ClientSecurity | None,
    ) -> None:
        super().__init__(bootstrap, client_id=client_id, timeout=timeout, security=security)
        self._reached = frozenset(reached)

    def all_nodes(self, deadline: float | None = None) -> list[int]:
        """The ids of the brokers that were reached."""
        return [node_id for node_id in super().all_nodes(deadline) if node_id in self._reached]

    def leader(self, partition: TopicPartition) -> int | None:
        """The answer of the base, None for a leader that was not reached."""
        leader = super().leader(partition)
        return leader if leader in self._reached else None


@dataclass(slots=True)
class ClusterLook:
    """A look at a cluster; ``seconds`` bounds each question, ``look_again`` is how long after the first look at the
    groups the second is taken (0: there is none).
    """

    bootstrap: Sequence[tuple[str, int]]
    probe: Probe
    seconds: float = 10.0
    look_again: float = 0.0
    progress: Progress = lambda text: None
    _unanswered: dict[str, str] = field(default_factory=dict)
    _reached: frozenset[int] = frozenset()
    _entrances: list[tuple[str, int]] = field(default_factory=list)

    def take(self) -> ClusterFacts:
        """All facts; what could not be seen is named in ``unanswered``."""
        with ThreadPoolExecutor(_THREADS) as pool:
            self.progress("the bootstrap addresses")
            bootstrap = tuple(pool.map(lambda address: self.probe.look(*address), self.bootstrap))
            self._entrances = [(each.host, each.port) for each in bootstrap if each.entered and each.is_broker]
            found = ClusterFacts(bootstrap)
            if not self._entrances:
                return found
            described = self._question("the brokers", describe_cluster)
            if described is None:
                return replace(found, unanswered=self._unanswered)
            self.progress("the brokers' addresses")
            listeners = dict(zip(described.brokers, pool.map(self._look_at, described.brokers), strict=True))
            found = replace(found, cluster_id=described.cluster_id)
            self._reached = frozenset(
                broker.id for broker, listener in listeners.items() if self._is_reached(broker, listener, described)
            )
            return self._questions(pool, replace(found, brokers=self._brokers(pool, listeners)))

    def _look_at(self, broker: ClusterBroker) -> ListenerFacts | None:
        """The facts of a broker's address; a fenced one is judged as such."""
        return None if broker.fenced or not broker.host else self.probe.look(broker.host, broker.port, broker.id)

    @staticmethod
    def _is_reached(broker: ClusterBroker, listener: ListenerFacts | None, cluster: ClusterDescription) -> bool:
        return listener is not None and listener.is_right and listener.cluster_id in (None, cluster.cluster_id)

    # --- Questions ----------------------------------------------------------------------------------------------------

    def _client(self) -> Client:
        return ReachedClient(
            self._entrances,
            self._reached,
            client_id=self.probe.client_id,
            timeout=self.seconds,
            security=self.probe.security,
        )

    def _question(self, name: str, ask: Callable[[Client], T]) -> T | None:
        """An answer, or None; why there is none is kept."""
        self.progress(name)
        try:
            with self._client() as client:
                return ask(client)
        except (ClientError, WireError, EncodeError) as error:
            self._unanswered[name] = str(error)
            return None

    def _brokers(
        self, pool: ThreadPoolExecutor, listeners: dict[ClusterBroker, ListenerFacts | None]
    ) -> tuple[BrokerFacts, ...]:
        def ask(broker: ClusterBroker) -> BrokerFacts:
            found = BrokerFacts(broker.id, broker.fenced, listeners[broker], rack=broker.rack)
            return self._ask_broker(found) if broker.id in self._reached else found

        return tuple(pool.map(ask, listeners))

    def _ask_broker(self, found: BrokerFacts) -> BrokerFacts:
        name = f"broker {found.id}"

        def ask(client: Client, kind: ResourceType, keys: Sequence[str]) -> dict[str, str]:
            answer = describe_many(client, kind, [str(found.id)], keys=keys, node_id=found.id)
            if str(found.id) not in answer:
                raise ClientError("this client may not see them")
            return answer[str(found.id)]

        def configs(client: Client) -> tuple[dict[str, str], bool]:
            values = ask(client, ResourceType.BROKER, BROKER_KEYS)
            try:
                return values, bool(ask(client, ResourceType.BROKER_LOGGER, _LOGGERS))
            except ClientError:  # levels of loggers are younger than other configs
                return values, False

        def log_dirs(client: Client) -> tuple[LogDirFacts, ...]:
            return tuple(
                LogDirFacts(
                    each.log_dir,
                    bool(each.error_code),
                    each.total_bytes if each.total_bytes >= 0 else None,
                    each.usable_bytes if each.usable_bytes >= 0 else None,
                    tuple(damaged_replicas(found.id, each)),
                    0 if each.scrub is None else each.scrub.found,
                )
                for each in describe_log_dirs(client, [found.id])[found.id].results
            )

        described = self._question(f"the configs of {name}", configs)
        told = self._question(f"the versions of {name}", lambda client: api_versions(client, found.id))
        return replace(
            found,
            configs=None if described is None else described[0],
            is_kbroker=described is not None and described[1],
            log_dirs=self._question(f"the log directories of {name}", log_dirs),
            apis=None
            if told is None
            else {each.api_key: (each.min_version, each.max_version) for each in told.api_keys},
            features=() if told is None else tuple(features_of(told)),
        )

    def _questions(self, pool: ThreadPoolExecutor, found: ClusterFacts) -> ClusterFacts:
        """The answers of the cluster as a whole, asked for at once; the second look at groups comes last."""
        looks = GroupLooks()
        is_whole = self._reached >= {broker.id for broker in found.brokers if not broker.fenced}

        def transactions(client: Client) -> Transactions:
            return look_at_transactions(client, _led(client, list_topics(client)), is_whole=is_whole)

        began = time.monotonic()
        groups = pool.submit(self._question, "the groups", looks.first)
        topics: Future[tuple[TopicFacts, ...] | None] = pool.submit(self._question, "the topics", _topics)
        quorum: Future[tuple[Quorum | None, str] | None] = pool.submit(self._question, "the quorum", ask_quorum)
        quotas: Future[list[EntityQuotas] | None] = pool.submit(
            self._question, "the quotas", lambda client: describe_quotas(client, {})
        )
        open_ones = pool.submit(self._question, "the transactions", transactions)
        told, reason = quorum.result() or (None, "")
        if reason:
            self._unanswered["the quorum"] = reason
        seen = open_ones.result()
        groups.result()
        if self.look_again and looks.has_members:
            self.progress(f"the groups again, in {self.look_again:g} s")
            time.sleep(max(0.0, began + self.look_again - time.monotonic()))
            self._question("the groups, a second time", looks.second)
        if looks.left_out:
            self._unanswered[f"{looks.left_out} of the groups"] = "There are too many to look at each."
        entities = quotas.result()
        listed = topics.result()
        return replace(
            found,
            brokers=_with_newest(found.brokers, listed or ()),
            quorum=told,
            topics=listed,
            groups=looks.facts(),
            transactions=None if seen is None else seen.known,
            open_transactions=() if seen is None else seen.open,
            unowned_transactions=() if seen is None else seen.unowned,
            quotas=None if entities is None else tuple(entities),
            unanswered=dict(sorted(self._unanswered.items())),
        )


def _led(client: Client, topics: Sequence[TopicDescription]) -> list[TopicPartition]:
    """Partitions whose leader was reached, at most so many."""
    found = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
    return [partition for partition in found if client.leader(partition) is not None][:_MOST_PARTITIONS]


def _topics(client: Client) -> tuple[TopicFacts, ...]:
    topics = list_topics(client)
    configs = describe_many(client, ResourceType.TOPIC, [topic.name for topic in topics], keys=TOPIC_KEYS)
    newest: dict[str, dict[int, int]] = {}
    for partition, listed in list_offsets(client, dict.fromkeys(_led(client, topics), MAX_TIMESTAMP)).items():
        if not isinstance(listed, ResponseError) and listed.timestamp >= 0:
            newest.setdefault(partition.topic, {})[partition.partition] = listed.timestamp
    return tuple(TopicFacts(topic, configs.get(topic.name, {}), newest.get(topic.name, {})) for topic in topics)


def _with_newest(brokers: Sequence[BrokerFacts], topics: Sequence[TopicFacts]) -> tuple[BrokerFacts, ...]:
    """The brokers with the newest timestamp that each has given to a record of an internal topic."""
    newest: dict[int, int] = {}
    for topic in topics:
        for each in topic.description.partitions if topic.description.internal else ():
            if each.leader is not None and each.partition in topic.newest:
                newest[each.leader] = max(newest.get(each.leader, 0), topic.newest[each.partition])
    return tuple(replace(broker, newest_own_record=newest.get(broker.id)) for broker in brokers)


class Transactions(NamedTuple):
    """Open transactions: ``known`` to coordinators, ``open`` in partitions, and those of them without an owner."""

    known: tuple[TransactionDescription, ...]
    open: tuple[OpenTransaction, ...]
    unowned: tuple[OpenTransaction, ...]


def look_at_transactions(client: Client, partitions: Sequence[TopicPartition], *, is_whole: bool) -> Transactions:
    """Ask the leaders, then the coordinators, then the leaders again for what no coordinator knows.

    ``is_whole``: whether every broker is asked; if not, a coordinator that was not may know a transaction.
    """
    opened = open_in(producers_of(client, partitions))
    listed = list_transactions(client, states=OPEN_STATES)
    unowned = hanging_among(client, opened) if is_whole and not listed.missing else ()
    known = []
    for each in listed.found[:MOST_TRANSACTIONS]:
        try:
            found = describe_transaction(client, each.transactional_id)
        except ResponseError:
            continue  # it has just ended, or is not for us
        if found.state in OPEN_STATES:
            known.append(found)
    return Transactions(tuple(known), tuple(opened), tuple(unowned))
