"""Facts about a machine, a configuration, a cluster and a client, as they were seen; checks judge them. Pure.

A part that was not looked at, or that could not be seen, is None. Times are in ms since the epoch of this machine's
clock, unless a docstring says whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kbroker.client.nodes import ClusterBroker, Feature
from kbroker.client.open_transactions import OpenTransaction
from kbroker.client.quotas import EntityQuotas
from kbroker.client.topics import TopicDescription
from kbroker.client.transactions import TransactionDescription
from kbroker.tools.diagnosis.cluster import GRACE_MS
from kbroker.tools.diagnosis.facts import ClusterView, DamagedReplica, Quorum
from kbroker.tools.diagnosis.stuck_groups import LaggingPartition
from kbroker.types import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_TOPIC: Final = "__share_group_state"
MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A certificate of a server. ``names`` are the hosts that it stands for: DNS names and addresses."""

    subject: str
    names: tuple[str, ...]
    valid_from: int
    valid_until: int


@dataclass(frozen=True, slots=True)
class ListenerFacts:
    """The facts of an address. ``broker`` is the id that the metadata gives it, None for a bootstrap address.

    ``problem`` says why there is no connection, ``resolved`` is empty if the name is not known. ``has_tls`` and
    ``has_sasl`` are None where that could not be found out. ``refusal`` says why the client was not let in.
    """

    host: str
    port: int
    broker: int | None = None
    resolved: tuple[str, ...] = ()
    problem: str = ""
    has_tls: bool | None = None
    has_sasl: bool | None = None
    mechanisms: tuple[str, ...] = ()
    certificate: CertificateFacts | None = None
    distrust: str = ""
    """The reason why the client does not trust the authority; the certificate's name and its days are judged apart."""
    weak_tls: tuple[str, ...] = ()
    """Versions of TLS before 1.2 that it takes."""
    entered: bool = False
    refusal: str = ""
    is_broker: bool = True
    """Whether it serves Metadata; a controller's listener does not."""
    cluster_id: str | None = None
    throttled_ms: int = 0
    """The throttle time in the answer to the client's first request."""
    other_id: str = ""
    """The id of the broker that answers, if it is another one than ``broker``: a number, or ``another``."""

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def where(self) -> str:
        """``broker 1 at kafka-1:9092``, or the bootstrap address."""
        return f"bootstrap address {self.address}" if self.broker is None else f"broker {self.broker} at {self.address}"

    @property
    def is_right(self) -> bool:
        """Whether the client is in, and talks to whom the metadata names."""
        return self.entered and self.is_broker and not self.other_id


@dataclass(frozen=True, slots=True)
class LogDirFacts:
    """A log directory as its broker describes it (KIP-113, KIP-827); sizes in bytes, None if it does not tell."""

    path: str
    failed: bool
    total: int | None = None
    usable: int | None = None
    damaged: tuple[DamagedReplica, ...] = ()
    scrub_found: int = 0
    """Damaged places that the latest scrub has come upon."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A registered broker; ``configs`` are its values without the secret ones."""

    id: int
    fenced: bool | None
    listener: ListenerFacts | None = None
    configs: Mapping[str, str] | None = None
    is_kbroker: bool = False
    log_dirs: tuple[LogDirFacts, ...] | None = None
    apis: Mapping[int, tuple[int, int]] | None = None
    """API key -> the versions that it serves."""
    features: tuple[Feature, ...] = ()
    newest_own_record: int | None = None
    """The latest timestamp, of the broker's own clock, among the records that it has written into internal topics."""
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic, with those of its configs that are judged; ``newest`` is the latest timestamp of its records."""

    description: TopicDescription
    configs: Mapping[str, str] = field(default_factory=dict)
    newest: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.description.name

    def number(self, config: str) -> int | None:
        """A config as a number; None if it is not known."""
        return number_of(self.configs, config)


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group at one moment: member ids, and of each partition the committed offset and the end of the log."""

    state: str
    members: frozenset[str]
    epoch: int | None = None
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group, seen once or twice; ``lagging`` are its partitions where records wait, at the second look."""

    group_id: str
    type: str
    first: GroupLook
    second: GroupLook | None = None
    lagging: tuple[LaggingPartition, ...] = ()

    @property
    def ms(self) -> int:
        """Time between the two looks."""
        return 0 if self.second is None else self.second.at_ms - self.first.at_ms


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster. ``bootstrap`` are the addresses that were given; the rest is there if one of them let the client in.

    ``unanswered``: question -> why it has no answer.
    """

    bootstrap: tuple[ListenerFacts, ...]
    cluster_id: str | None = None
    brokers: tuple[BrokerFacts, ...] = ()
    quorum: Quorum | None = None
    topics: tuple[TopicFacts, ...] | None = None
    groups: tuple[GroupFacts, ...] | None = None
    transactions: tuple[TransactionDescription, ...] | None = None
    """Open ones, as their coordinators know them."""
    open_transactions: tuple[OpenTransaction, ...] = ()
    """Open ones, as the leaders of partitions know them."""
    unowned_transactions: tuple[OpenTransaction, ...] = ()
    """Those of them that no coordinator knows, or tells this client of."""
    quotas: tuple[EntityQuotas, ...] | None = None
    unanswered: Mapping[str, str] = field(default_factory=dict)

    @property
    def listeners(self) -> tuple[ListenerFacts, ...]:
        """All that were looked at, each address once: those of brokers, then other bootstrap addresses."""
        known = [broker.listener for broker in self.brokers if broker.listener is not None]
        seen = {(each.host, each.port) for each in known}
        return (*known, *(each for each in self.bootstrap if (each.host, each.port) not in seen))

    @property
    def machines(self) -> int:
        """The number of machines that can fail by themselves. Brokers of one rack and host are on one (``--cores``)."""
        hosts = {each.id: "" if each.listener is None else each.listener.host for each in self.brokers}
        return len({each.id if each.rack is None else (each.rack, hosts[each.id]) for each in self.brokers})

    @property
    def throttled_ms(self) -> int:
        """The longest throttle time in an answer to the doctor itself."""
        return max((each.throttled_ms for each in self.listeners), default=0)


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """A client's properties, the secret ones left out; ``problem`` says why they cannot be used."""

    source: str
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    checks_names: bool = True
    given: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """A data directory of this machine; ``partitions`` and ``segments`` are counted, sizes in bytes."""

    path: str
    problem: str = ""
    formatted: bool = False
    cluster_id: str | None = None
    node_id: int | None = None
    partitions: int = 0
    segments: int = 0
    total: int = 0
    free: int = 0
    damaged: tuple[DamagedReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A client's listener in a configuration; ``resolved`` are the addresses of its advertised host."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    resolved: tuple[str, ...] = ()
    certificate: CertificateFacts | None = None


@dataclass(frozen=True, slots=True)
class ConfigurationFacts:
    """A node's configuration; ``values`` are the properties of its file that are no secrets.

    ``absent``: a reason -> the properties that have no effect for it. ``voters`` are of a static quorum.
    """

    source: str
    problem: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    node_id: int = -1
    listeners: tuple[ListenerConfig, ...] = ()
    exposed: tuple[str, ...] = ()
    voters: int = 0
    directories: tuple[DirectoryFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """This machine, for the process that looks: limits of open files, None without one, and the clock's state."""

    open_files: int | None
    open_files_hard: int | None
    clock_synchronised: bool | None = None
    clock_error_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was looked at, at ``now`` of this machine's clock."""

    now: int
    machine: MachineFacts | None = None
    configuration: ConfigurationFacts | None = None
    client: ClientFacts | None = None
    cluster: ClusterFacts | None = None

    @property
    def known_cluster(self) -> ClusterFacts:
        """The cluster; one of which nothing is known, if none was looked at."""
        return self.cluster or ClusterFacts(())

    @property
    def view(self) -> ClusterView:
        """The facts that rules judge which are not the doctor's alone."""
        cluster = self.known_cluster
        return ClusterView(
            self.now,
            cluster.cluster_id,
            [ClusterBroker(each.id, "", -1, None, each.fenced) for each in cluster.brokers],
            cluster.quorum,
            failed_dirs=[(each.id, dir.path) for each in cluster.brokers for dir in each.log_dirs or () if dir.failed],
            damaged=self._damaged(),
            topics=[topic.description for topic in self.topics],
            min_isr={each.name: least for each in self.topics if (least := each.number(MIN_ISR)) is not None},
            transactions=cluster.transactions or (),
            hanging=[each for each in cluster.unowned_transactions if self._hangs(each)],
        )

    def _damaged(self) -> list[DamagedReplica]:
        """Returns what brokers say, and what this machine's directories note, once if both are of the same node."""
        found = [each for broker in self.brokers for dir in broker.log_dirs or () for each in dir.damaged]
        if self.configuration is not None:
            found += (each for dir in self.configuration.directories for each in dir.damaged)
        return list(dict.fromkeys(found))

    def _hangs(self, entry: OpenTransaction) -> bool:
        """Returns whether no coordinator can know a transaction: none is hidden, or none would be open for so long."""
        brokers = self.brokers
        if all((broker.configs or {}).get("authorizer.class.name") == "" for broker in brokers):
            return True
        longest = max((number_of(each.configs, "transaction.max.timeout.ms") or 0 for each in brokers), default=0)
        return longest > 0 and self.now - entry.producer.last_timestamp > longest + GRACE_MS

    @property
    def known_client(self) -> ClientFacts:
        """The client, or one without properties."""
        return self.client or ClientFacts("the default: PLAINTEXT")

    @property
    def brokers(self) -> tuple[BrokerFacts, ...]:
        """The brokers that are known."""
        return self.known_cluster.brokers

    @property
    def topics(self) -> tuple[TopicFacts, ...]:
        """The topics that are known."""
        return self.known_cluster.topics or ()

    @property
    def groups(self) -> tuple[GroupFacts, ...]:
        """The groups that are known."""
        return self.known_cluster.groups or ()


def number_of(values: Mapping[str, str] | None, name: str) -> int | None:
    """A property as a whole number; None if it is not known, or is none."""
    text = (values or {}).get(name, "")
    try:
        return int(text)
    except ValueError:
        return None
