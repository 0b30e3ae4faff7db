"""Facts about a machine, a configuration, a cluster and a client, as they were seen; checks judge them. Pure.

A part that was not looked at, or that could not be seen, is None. Times are in ms since the epoch of this machine's
clock, unless a docstring says whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kbroker.client.nodes import Feature
from kbroker.client.quotas import EntityQuotas
from kbroker.client.topics import TopicDescription
from kbroker.client.troubles import QuorumNode
from kbroker.types import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_TOPIC: Final = "__share_group_state"


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


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """The quorum of controllers; ``leader`` is -1 without one.

    ``leader_clock`` is its time when it answered, between ``asked_at`` and ``answered_at``; None if it does not tell.
    """

    leader: int
    nodes: tuple[QuorumNode, ...]
    leader_clock: int | None = None
    asked_at: int = 0
    answered_at: int = 0


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


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group, seen once or twice; ``seconds`` are between the two looks."""

    group_id: str
    type: str
    first: GroupLook
    second: GroupLook | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    """An open transaction as its coordinator knows it; ``began`` is of the coordinator's clock."""

    transactional_id: str
    producer_id: int
    state: str
    timeout_ms: int
    began: int | None


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as the partition's leader knows it."""

    partition: TopicPartition
    producer_id: int
    start_offset: int
    last_write: int
    has_coordinator: bool
    """Whether the transaction's coordinator knows it."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster. ``bootstrap`` are the addresses that were given; the rest is there if one of them let the client in.

    ``unanswered``: question -> why it has no answer.
    """

    bootstrap: tuple[ListenerFacts, ...]
    cluster_id: str | None = None
    brokers: tuple[BrokerFacts, ...] = ()
    quorum: QuorumFacts | None = None
    quorum_problem: str = ""
    """The reason why nothing is known of the quorum although the client may ask."""
    topics: tuple[TopicFacts, ...] | None = None
    groups: tuple[GroupFacts, ...] | None = None
    transactions: tuple[TransactionFacts, ...] | None = None
    open_transactions: tuple[OpenTransaction, ...] = ()
    quotas: tuple[EntityQuotas, ...] | None = None
    unanswered: Mapping[str, str] = field(default_factory=dict)

    @property
    def listeners(self) -> tuple[ListenerFacts, ...]:
        """All that were looked at, each address once: those of brokers, then other bootstrap addresses."""
        known = [broker.listener for broker in self.brokers if broker.listener is not None]
        seen = {(each.host, each.port) for each in known}
        return (*known, *(each for each in self.bootstrap if (each.host, each.port) not in seen))

    @property
    def throttled_ms(self) -> int:
        """The longest throttle time in an answer to the doctor itself."""
        return max((each.throttled_ms for each in self.listeners), default=0)

    @property
    def alive(self) -> frozenset[int]:
        """The brokers that are not fenced."""
        return frozenset(broker.id for broker in self.brokers if not broker.fenced)


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
