"""The APIs that this node serves: the table that requests are dispatched by and ApiVersions is computed from.

The rows are at the end of this file, and a handler module attaches its function to its own::

    @handler(HeartbeatRequest)
    async def handle(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse: ...

A node starts without importing some fifty modules of which its clients need ten: a module comes with the first
request.
An API without a row is not advertised, and a request for it closes the connection.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kbroker.value_types import NamedTuple, dataclass
from kbroker.wire.registry import API_KEYS, api_named
from kbroker.wire.schema import VersionRange as Versions

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext


class ListenerKind(enum.Flag):
    """The purpose of a listener. A CONTROLLER listener serves only the APIs that are registered for it."""

    BROKER = enum.auto()
    CONTROLLER = enum.auto()


BROKER = ListenerKind.BROKER
CONTROLLER = ListenerKind.CONTROLLER
BOTH = ListenerKind.BROKER | ListenerKind.CONTROLLER


class Forwarding(enum.Enum):
    """The way of a request to the active controller, from the broker that it was sent to."""

    NONE = enum.auto()
    """Not at all: every broker answers it."""
    BY_CONNECTION = enum.auto()
    """The connection passes it on, before its handler (``node.serving.dispatcher``)."""
    BY_HANDLER = enum.auto()
    """The handler passes it on, after checks that only the broker that was asked can make."""


class Preload(enum.Enum):
    """The nodes that import a handler before anybody asks for it, once their first clients are served."""

    ALL = enum.auto()
    SECURED = enum.auto()
    """Those with a listener that is not PLAINTEXT, or with an authorizer: the API administers security."""
    PEERS = enum.auto()
    """Those in a cluster with others: nodes ask one another."""
    NONE = enum.auto()
    """No node: most are never asked for the API, and all would have its handler in memory."""


class LargeAnswers(NamedTuple):
    """An API whose answers may be large: with all topics of a cluster, all groups of a node."""

    lists_of: Callable[[Any], Iterator[list[Any]]]
    """The long lists of an answer, the inner ones first: the partitions of each topic, then the topics."""
    all_topics_are_asked_for: Callable[[Any, int], bool] = lambda request, version: False
    """Whether a request of a version asks for all topics. Where there are many, its answer is known to be large."""


_BY_MODULE: Final = ("request_class", "handle", "check", "prefetch_permissions", "large_answers")


@dataclass(slots=True, init=False, eq=False)
class Registration:
    """An API that is served. ``request_class`` and all behind it come with the handler's module, on their first use.

    ``advertised`` are the versions of ApiVersions, which differ from those that are served for Produce alone (see its
    handler). ``unstable`` are those that are served with ``unstable.api.versions.enable``, if they are more.
    """

    api_key: int
    versions: Versions
    advertised: Versions
    unstable: Versions | None
    listeners: ListenerKind
    forwarding: Forwarding
    is_async: bool
    preload: Preload
    request_class: type[Any]
    handle: Callable[[Any, RequestContext], Any]
    check: Callable[[Any], None] | None
    """Raises ``CloseConnection`` for what no node can read: it is not passed on to the controller either."""
    prefetch_permissions: Callable[[Any, RequestContext], Awaitable[None]] | None
    """Asks the authorizer about all that a long request names, in turns with everything else. Of plain handlers."""
    large_answers: LargeAnswers | None
    """Tells whether its answer is large; None for an API whose answers never are."""

    def __init__(
        self,
        api_key: int,
        versions: Versions,
        advertised: Versions,
        listeners: ListenerKind,
        forwarding: Forwarding,
        is_async: bool,
        request_class: type[Any] | None = None,
        handle: Callable[[Any, RequestContext], Any] | None = None,
        unstable: Versions | None = None,
        check: Callable[[Any], None] | None = None,
        prefetch_permissions: Callable[[Any, RequestContext], Awaitable[None]] | None = None,
        large_answers: LargeAnswers | None = None,
        preload: Preload = Preload.ALL,
    ) -> None:
        self.api_key = api_key
        self.versions = versions
        self.advertised = advertised
        self.unstable = unstable
        self.listeners = listeners
        self.forwarding = forwarding
        self.is_async = is_async
        self.preload = preload
        if request_class is not None and handle is not None:
            self.request_class, self.handle = request_class, handle
            self.check, self.prefetch_permissions, self.large_answers = check, prefetch_permissions, large_answers

    def __getattr__(self, name: str) -> Any:
        """Load the module: only called for attributes that are not there yet."""
        if name not in _BY_MODULE:
            raise AttributeError(name)
        self.load()
        return object.__getattribute__(self, name)

    def load(self) -> None:
        """Import the handler's module, if nothing has yet."""
        importlib.import_module(_handler_module(self.api_key))
        row = _REGISTRATIONS[self.api_key]
        if row is not self:
            for name in _BY_MODULE:
                setattr(self, name, getattr(row, name))

    def with_unstable(self) -> Registration:
        """The same API with its unstable versions; itself where it has none."""
        if self.unstable is None:
            return self
        return Registration(
            self.api_key,
            self.unstable,
            self.unstable,
            self.listeners,
            self.forwarding,
            self.is_async,
            preload=self.preload,
        )

    @property
    def is_for_controller(self) -> bool:
        """Whether brokers pass it on to the active controller, one way or the other."""
        return self.forwarding is not Forwarding.NONE


_tables: dict[tuple[ListenerKind, bool], dict[int, Registration]] = {}

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def api_key_of(request_class: type[Any]) -> int:
    """The API key that ``@message`` gave the class."""
    return int(request_class.api_key)


def handler(
    request_class: type[_Request],
    *,
    check: Callable[[_Request], None] | None = None,
    prefetch_permissions: Callable[[_Request, RequestContext], Awaitable[None]] | None = None,
    large_answers: LargeAnswers | None = None,
) -> Callable[[Callable[[_Request, RequestContext], _Answer]], Callable[[_Request, RequestContext], _Answer]]:
    """Make ``async def handle(request, ctx)`` serve an API; a plain ``def`` if it never waits and must be fast.

    The function answers with the response object, with ``None`` when the client is to get no answer, or with a
    :class:`~kbroker.runtime.later.Later` whose value comes later while the connection reads on.
    ``ApiError`` must not escape it: errors to clients are fields of the response.

    ``check`` is `Registration.check`; the function calls it, too, if it is to hold for requests that it gets.
    ``prefetch_permissions`` and ``large_answers`` are those of `Registration`.

    ValueError when the API has no row in this file, or a row whose ``is_async`` is not the function's.
    """

    def register(
        function: Callable[[_Request, RequestContext], _Answer],
    ) -> Callable[[_Request, RequestContext], _Answer]:
        key = api_key_of(request_class)
        row = _REGISTRATIONS.get(key)
        if row is None or _handler_module(key) != function.__module__:
            raise ValueError(f"{function.__module__} has no row in kbroker.handlers.registration")
        if row.is_async != iscoroutinefunction(function):
            raise ValueError(f"the row of {API_KEYS[key].name} in kbroker.handlers.registration is to say is_async")
        row.request_class, row.handle, row.check = request_class, function, check
        row.prefetch_permissions, row.large_answers = prefetch_permissions, large_answers
        return function

    return register


def registrations(listener: ListenerKind, *, unstable: bool = False) -> Mapping[int, Registration]:
    """The APIs of a kind of listener by key, in key order, with their ``unstable`` versions or without.

    Every call returns the same table.
    """
    table = _tables.get((listener, unstable))
    if table is None:
        table = {
            key: entry.with_unstable() if unstable else entry
            for key, entry in sorted(_REGISTRATIONS.items())
            if listener & entry.listeners
        }
        _tables[listener, unstable] = table
    return table


_QUORUM_APIS: Final = (52, 53, 54, 59, 80, 81, 82)
"""From Vote to UpdateRaftVoter, all in ``handlers.quorum``. Others are handled where their messages' module says."""


def _handler_module(api_key: int) -> str:
    return f"kbroker.handlers.{'quorum' if api_key in _QUORUM_APIS else API_KEYS[api_key].module}"


def _served(
    name: str,
    versions: Versions,
    *,
    advertised: Versions | None = None,
    unstable: Versions | None = None,
    listeners: ListenerKind = BROKER,
    forwarding: Forwarding = Forwarding.NONE,
    is_async: bool = True,
    preload: Preload = Preload.ALL,
) -> Registration:
    return Registration(
        api_named(name).key,
        versions,
        advertised or versions,
        listeners,
        forwarding,
        is_async,
        unstable=unstable,
        preload=preload,
    )


_BY_CONNECTION: Final = Forwarding.BY_CONNECTION
_BY_HANDLER: Final = Forwarding.BY_HANDLER
_SECURED: Final = Preload.SECURED
_PEERS: Final = Preload.PEERS
_NONE: Final = Preload.NONE


_ROWS: Final = (
    _served("Produce", Versions(3, 13), advertised=Versions(0, 13), is_async=False),
    _served("Fetch", Versions(4, 18), listeners=BOTH),
    _served("ListOffsets", Versions(1, 11), is_async=False),
    _served("Metadata", Versions(0, 13)),
    _served("OffsetCommit", Versions(2, 10), is_async=False),
    _served("OffsetFetch", Versions(1, 10)),
    _served("FindCoordinator", Versions(0, 6)),
    _served("JoinGroup", Versions(0, 9)),
    _served("Heartbeat", Versions(0, 4), is_async=False),
    _served("LeaveGroup", Versions(0, 5)),
    _served("SyncGroup", Versions(0, 5)),
    _served("DescribeGroups", Versions(0, 6)),
    _served("ListGroups", Versions(0, 5)),
    _served("SaslHandshake", Versions(0, 1), listeners=BOTH, preload=_SECURED),
    _served("ApiVersions", Versions(0, 5), listeners=BOTH, is_async=False),
    _served("CreateTopics", Versions(2, 7), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("DeleteTopics", Versions(1, 6), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("DeleteRecords", Versions(0, 2)),
    _served("InitProducerId", Versions(0, 5), unstable=Versions(0, 6)),
    _served("OffsetForLeaderEpoch", Versions(2, 4)),
    _served("AddPartitionsToTxn", Versions(0, 5), is_async=False),
    _served("AddOffsetsToTxn", Versions(0, 4)),
    _served("EndTxn", Versions(0, 5), is_async=False),
    _served("WriteTxnMarkers", Versions(1, 2), preload=_PEERS),
    _served("TxnOffsetCommit", Versions(0, 6)),
    _served("DescribeAcls", Versions(1, 3), listeners=BOTH, preload=_SECURED),
    _served("CreateAcls", Versions(1, 3), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED),
    _served("DeleteAcls", Versions(1, 3), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED),
    _served("DescribeConfigs", Versions(1, 4), listeners=BOTH),
    _served("AlterConfigs", Versions(0, 2), listeners=BOTH, forwarding=_BY_HANDLER),
    _served("AlterReplicaLogDirs", Versions(1, 2)),
    _served("DescribeLogDirs", Versions(1, 5)),
    _served("SaslAuthenticate", Versions(0, 2), listeners=BOTH, preload=_SECURED),
    _served("CreatePartitions", Versions(0, 3), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("CreateDelegationToken", Versions(1, 3), listeners=BOTH, forwarding=_BY_HANDLER, preload=_SECURED),
    _served("RenewDelegationToken", Versions(1, 2), listeners=BOTH, forwarding=_BY_HANDLER, preload=_SECURED),
    _served("ExpireDelegationToken", Versions(1, 2), listeners=BOTH, forwarding=_BY_HANDLER, preload=_SECURED),
    _served("DescribeDelegationToken", Versions(1, 3), listeners=BOTH, preload=_SECURED),
    _served("DeleteGroups", Versions(0, 3)),
    _served("ElectLeaders", Versions(0, 2), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("IncrementalAlterConfigs", Versions(0, 1), listeners=BOTH, forwarding=_BY_HANDLER),
    _served("AlterPartitionReassignments", Versions(0, 1), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("ListPartitionReassignments", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("OffsetDelete", Versions(0, 0)),
    _served("DescribeClientQuotas", Versions(0, 1), preload=_SECURED),
    _served("AlterClientQuotas", Versions(0, 1), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED),
    _served("DescribeUserScramCredentials", Versions(0, 0), listeners=BOTH, preload=_SECURED),
    _served("AlterUserScramCredentials", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED),
    _served("Vote", Versions(0, 2), listeners=CONTROLLER, preload=_PEERS),
    _served("BeginQuorumEpoch", Versions(0, 1), listeners=CONTROLLER, preload=_PEERS),
    _served("EndQuorumEpoch", Versions(0, 1), listeners=CONTROLLER, preload=_PEERS),
    _served("DescribeQuorum", Versions(0, 2), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("AlterPartition", Versions(2, 3), listeners=CONTROLLER, preload=_PEERS),
    _served("UpdateFeatures", Versions(0, 2), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("Envelope", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("FetchSnapshot", Versions(0, 1), listeners=CONTROLLER, preload=_PEERS),
    _served("DescribeCluster", Versions(0, 2), listeners=BOTH),
    _served("DescribeProducers", Versions(0, 0)),
    _served("BrokerRegistration", Versions(0, 4), listeners=CONTROLLER, preload=_PEERS),
    _served("BrokerHeartbeat", Versions(0, 2), listeners=CONTROLLER, preload=_PEERS),
    _served("UnregisterBroker", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("DescribeTransactions", Versions(0, 0)),
    _served("ListTransactions", Versions(0, 2)),
    _served("AllocateProducerIds", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("ConsumerGroupHeartbeat", Versions(0, 1)),
    _served("ConsumerGroupDescribe", Versions(0, 1)),
    _served("GetTelemetrySubscriptions", Versions(0, 0)),
    _served("PushTelemetry", Versions(0, 0)),
    _served("ControllerRegistration", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("AssignReplicasToDirs", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("ListConfigResources", Versions(0, 1)),
    _served("DescribeTopicPartitions", Versions(0, 0)),
    _served("ShareGroupHeartbeat", Versions(1, 1), preload=_NONE),
    _served("ShareGroupDescribe", Versions(1, 1), preload=_NONE),
    _served("DescribeShareGroupOffsets", Versions(0, 1), preload=_NONE),
    _served("AlterShareGroupOffsets", Versions(0, 0), preload=_NONE),
    _served("DeleteShareGroupOffsets", Versions(0, 0), preload=_NONE),
    _served("AddRaftVoter", Versions(0, 1), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_PEERS),
    _served("RemoveRaftVoter", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_PEERS),
    _served("UpdateRaftVoter", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("InitializeShareGroupState", Versions(0, 0), preload=_NONE),
    _served("ReadShareGroupState", Versions(0, 0), preload=_NONE),
    _served("WriteShareGroupState", Versions(0, 1), preload=_NONE),
    _served("DeleteShareGroupState", Versions(0, 0), preload=_NONE),
    _served("ReadShareGroupStateSummary", Versions(0, 1), preload=_NONE),
    _served("StreamsGroupHeartbeat", Versions(0, 1), preload=_NONE),
    _served("StreamsGroupDescribe", Versions(0, 1), preload=_NONE),
    _served("StreamsGroupTopologyDescriptionUpdate", Versions(0, 0), preload=_NONE),
    _served("UnregisterController", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("ShareFetch", Versions(1, 2), preload=_NONE),
    _served("ShareAcknowledge", Versions(1, 2), preload=_NONE),
)

_REGISTRATIONS: Final = {row.api_key: row for row in _ROWS}
