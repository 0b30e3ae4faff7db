"""The questions to rules: records that cannot be changed."""

from __future__ import annotations

import hmac
from enum import Enum
from typing import Final, NamedTuple, NoReturn, Protocol

from kbroker.observe.telemetry.otlp import Label, Point
from kbroker.security.authorizer.acls import Acl, AclFilter
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.scram import ScramMechanism


class Action(NamedTuple):
    """Something that a client wants to do (Kafka's ``Action`` and ``AuthorizableRequestContext``)."""

    principal: KafkaPrincipal
    host: str
    """The client's address, without its port."""
    operation: AclOperation
    resource_type: ResourceType
    name: str
    """The resource's name; ``kafka-cluster`` of the cluster. Empty where any resource of the type is meant."""
    listener: str = ""
    """The name of the listener that the request came in by. Of a request that another node passed on, it is the
    controller's listener, as in Kafka."""
    client_id: str = ""
    api: str = ""
    """Kafka's name of the request: ``Produce``, ``Fetch``. Empty where a node asks without one."""


class AclChange(NamedTuple):
    """ACLs that a client wants to add (Kafka's ``Authorizer.createAcls``); it may alter the cluster."""

    principal: KafkaPrincipal
    host: str
    """The client's address, without its port. Of a request that another node passed on, it is the client's, too."""
    acls: tuple[Acl, ...]


class AclRemoval(NamedTuple):
    """ACLs that a client wants to remove (Kafka's ``Authorizer.deleteAcls``); it may alter the cluster."""

    principal: KafkaPrincipal
    host: str
    """The client's address, as in ACLs that are added."""
    filters: tuple[AclFilter, ...]


class Password:
    """A password that does not show itself: not in a log, a traceback, a pickle. `reveal` gives its text.

    ``password == "text"`` takes the same time however alike the two are.
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """The text. Give it to what checks it, and to nothing else."""
        return self.__text

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Password):
            other = other.reveal()
        if not isinstance(other, str):
            return NotImplemented
        mine, theirs = (text.encode("utf-8", "surrogatepass") for text in (self.__text, other))
        # Of digests, since the length of a password is a secret, too.
        return hmac.compare_digest(hmac.digest(_KEY, mine, "sha256"), hmac.digest(_KEY, theirs, "sha256"))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "[hidden]"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Password is not for pickles: use reveal()")


_KEY: Final = b"kbroker.rules.Password"


class Login(NamedTuple):
    """A user and password that a client has given (SASL mechanism PLAIN; Kafka's ``PlainAuthenticateCallback``)."""

    listener: str
    host: str
    """The client's address, without its port."""
    username: str
    password: Password


class ScramLogin(NamedTuple):
    """A user who wants to prove that he knows his password (SCRAM; Kafka's ``ScramCredentialCallback``)."""

    listener: str
    host: str
    """The client's address, without its port."""
    username: str
    mechanism: ScramMechanism


class Token(NamedTuple):
    """A token that a client has given (SASL mechanism OAUTHBEARER; Kafka's ``OAuthBearerValidatorCallback``)."""

    listener: str
    host: str
    """The client's address, without its port."""
    value: Password
    """The token itself."""


class TokenUser(NamedTuple):
    """The user that a token is for."""

    name: str
    expires_at: float
    """When the session ends, in seconds since 1970; no token holds for ever."""
    scopes: frozenset[str] = frozenset()


class ConnectingClient(NamedTuple):
    """A client that has authenticated (Kafka's ``AuthenticationContext``)."""

    listener: str
    security_protocol: str
    """``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``."""
    host: str
    """The client's address, without its port."""
    principal: KafkaPrincipal
    """The principal without a principal builder: the user of SASL, or the certificate's subject by
    ``ssl.principal.mapping.rules``, or ``User:ANONYMOUS``."""
    mechanism: str
    """The mechanism of SASL; empty without SASL."""
    certificate: bytes | None
    """The client's certificate (X.509, DER), None if it has shown none."""
    subject: str | None
    """The certificate's subject as in RFC 2253, as Java writes it; None if it has shown none."""


class QuotaKind(Enum):
    """Kinds of quotas, and their units (Kafka's ``ClientQuotaType``)."""

    PRODUCE = "producer_byte_rate"
    """Bytes a second."""
    FETCH = "consumer_byte_rate"
    """Bytes a second."""
    REQUEST = "request_percentage"
    """Percent of the time of the node's event loop."""
    CONTROLLER_MUTATION = "controller_mutation_rate"
    """Partitions created or deleted a second."""


class Cluster(Protocol):
    """The cluster as the node that asks knows it now (of Kafka's ``Cluster``, what quotas may depend on)."""

    @property
    def node_id(self) -> int:
        """The node that asks."""

    def brokers(self) -> list[int]:
        """The ids of the brokers that serve, in order."""

    def topics(self) -> list[str]:
        """The names of all topics."""

    def leaders(self, topic: str) -> list[int | None]:
        """The leader of each partition of a topic, None where there is none; empty if there is no such topic."""


class _NoCluster:
    """A cluster without brokers and topics."""

    node_id = -1

    def brokers(self) -> list[int]:
        return []

    def topics(self) -> list[str]:
        return []

    def leaders(self, topic: str) -> list[int | None]:
        return []


class QuotaClient(NamedTuple):
    """A client that a quota is asked for."""

    kind: QuotaKind
    principal: KafkaPrincipal
    client_id: str
    configured: float | None
    """The limit that the quotas of the cluster give it (``kafka-configs``); None for none."""
    cluster: Cluster = _NoCluster()
    """The brokers and partitions, for limits that depend on them. Without any unless a node asks."""


class Quota(NamedTuple):
    """A limit, in the unit of its kind, and who shares it."""

    limit: float
    """``math.inf`` for none."""
    shared_by: str | None = None
    """Clients with the same text share the limit. With None each pair of principal and client id has it alone."""


class Replica(NamedTuple):
    """A replica that could serve a consumer: it is in the ISR, and has the offset (Kafka's ``ReplicaView``)."""

    node_id: int
    rack: str
    """Empty if it has none, or if its node does not live."""
    log_end_offset: int
    behind_ms: int
    """Milliseconds since it had all that the leader has; 0 of the leader."""


class Reading(NamedTuple):
    """A consumer's Fetch of a partition (KIP-392; Kafka's ``ClientMetadata`` and ``PartitionView``)."""

    topic: str
    partition: int
    rack: str
    """The consumer's ``client.rack``; empty if it has none."""
    client_id: str
    principal: KafkaPrincipal
    host: str
    """The client's address, without its port."""
    listener: str
    leader: Replica
    """The replica that is asked."""
    followers: tuple[Replica, ...]


class ClientMetrics(NamedTuple):
    """The metrics that a client has pushed at once (KIP-714).

    Kafka's ``ClientTelemetryPayload`` and ``ClientTelemetryContext``.
    """

    client_instance_id: str
    client_id: str
    software_name: str
    software_version: str
    principal: KafkaPrincipal
    host: str
    """The client's address, without its port."""
    port: int
    listener: str
    node_id: int
    """The node that was pushed to."""
    received_at_ms: int
    push_interval_ms: int
    terminating: bool
    """The client ends: this is its last push."""
    resource: dict[str, Label]
    points: tuple[Point, ...]
    payload: bytes
    """OTLP ``MetricsData``, decompressed, as the client has made it."""
