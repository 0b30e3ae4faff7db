"""The APIs that this node serves: the table that requests are dispatched by and ApiVersions is computed from.

The rows are at the end of this file, and a handler module attaches its function to its own::

    @handler(HeartbeatRequest)
    async def handle(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse: ...

A node starts without importing more than eighty modules of which its clients need ten: a module comes with the first
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
from kbroker.wire.registry import API_KEYS
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


_KEYS: Final = {api.module: key for key, api in API_KEYS.items()}

_QUORUM_APIS: Final = (52, 53, 54, 59, 80, 81, 82)
"""From Vote to UpdateRaftVoter, all in ``handlers.quorum``. Every other API has a handler module of its own."""


def _handler_module(api_key: int) -> str:
    return f"kbroker.handlers.{'quorum' if api_key in _QUORUM_APIS else API_KEYS[api_key].module}"


def _served(
    module: str,
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
        _KEYS[module],
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
    _served("produce", Versions(3, 13), advertised=Versions(0, 13), is_async=False),
    _served("fetch", Versions(4, 18), listeners=BOTH),
    _served("list_offsets", Versions(1, 11), is_async=False),
    _served("metadata", Versions(0, 13)),
    _served("offset_commit", Versions(2, 10), is_async=False),
    _served("offset_fetch", Versions(1, 10)),
    _served("find_coordinator", Versions(0, 6)),
    _served("join_group", Versions(0, 9)),
    _served("heartbeat", Versions(0, 4), is_async=False),
    _served("leave_group", Versions(0, 5)),
    _served("sync_group", Versions(0, 5)),
    _served("describe_groups", Versions(0, 6)),
    _served("list_groups", Versions(0, 5)),
    _served("sasl_handshake", Versions(0, 1), listeners=BOTH, preload=_SECURED),
    _served("api_versions", Versions(0, 5), listeners=BOTH),
    _served("create_topics", Versions(2, 7), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("delete_topics", Versions(1, 6), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("delete_records", Versions(0, 2)),
    _served("init_producer_id", Versions(0, 5), unstable=Versions(0, 6)),
    _served("offset_for_leader_epoch", Versions(2, 4)),
    _served("add_partitions_to_txn", Versions(0, 5), is_async=False),
    _served("add_offsets_to_txn", Versions(0, 4)),
    _served("end_txn", Versions(0, 5), is_async=False),
    _served("write_txn_markers", Versions(1, 2), preload=_PEERS),
    _served("txn_offset_commit", Versions(0, 6)),
    _served("describe_acls", Versions(1, 3), listeners=BOTH, preload=_SECURED),
    _served("create_acls", Versions(1, 3), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED),
    _served("delete_acls", Versions(1, 3), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED),
    _served("describe_configs", Versions(1, 4), listeners=BOTH),
    _served("alter_configs", Versions(0, 2), listeners=BOTH, forwarding=_BY_HANDLER),
    _served("alter_replica_log_dirs", Versions(1, 2)),
    _served("describe_log_dirs", Versions(1, 5)),
    _served("sasl_authenticate", Versions(0, 2), listeners=BOTH, preload=_SECURED),
    _served("create_partitions", Versions(0, 3), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("create_delegation_token", Versions(1, 3), listeners=BOTH, forwarding=_BY_HANDLER, preload=_SECURED),
    _served("renew_delegation_token", Versions(1, 2), listeners=BOTH, forwarding=_BY_HANDLER, preload=_SECURED),
    _served("expire_delegation_token", Versions(1, 2), listeners=BOTH, forwarding=_BY_HANDLER, preload=_SECURED),
    _served("describe_delegation_token", Versions(1, 3), listeners=BOTH, preload=_SECURED),
    _served("delete_groups", Versions(0, 3)),
    _served("elect_leaders", Versions(0, 2), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("incremental_alter_configs", Versions(0, 1), listeners=BOTH, forwarding=_BY_HANDLER),
    _served("alter_partition_reassignments", Versions(0, 1), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("list_partition_reassignments", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("offset_delete", Versions(0, 0)),
    _served("describe_client_quotas", Versions(0, 1), preload=_SECURED),
    _served("alter_client_quotas", Versions(0, 1), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED),
    _served("describe_user_scram_credentials", Versions(0, 0), listeners=BOTH, preload=_SECURED),
    _served(
        "alter_user_scram_credentials", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_SECURED
    ),
    _served("vote", Versions(0, 2), listeners=CONTROLLER, preload=_PEERS),
    _served("begin_quorum_epoch", Versions(0, 1), listeners=CONTROLLER, preload=_PEERS),
    _served("end_quorum_epoch", Versions(0, 1), listeners=CONTROLLER, preload=_PEERS),
    _served("describe_quorum", Versions(0, 2), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("alter_partition", Versions(2, 3), listeners=CONTROLLER, preload=_PEERS),
    _served("update_features", Versions(0, 2), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("envelope", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("fetch_snapshot", Versions(0, 1), listeners=CONTROLLER, preload=_PEERS),
    _served("describe_cluster", Versions(0, 2), listeners=BOTH),
    _served("describe_producers", Versions(0, 0)),
    _served("broker_registration", Versions(0, 4), listeners=CONTROLLER, preload=_PEERS),
    _served("broker_heartbeat", Versions(0, 2), listeners=CONTROLLER, preload=_PEERS),
    _served("unregister_broker", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("describe_transactions", Versions(0, 0)),
    _served("list_transactions", Versions(0, 2)),
    _served("allocate_producer_ids", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("consumer_group_heartbeat", Versions(0, 1)),
    _served("consumer_group_describe", Versions(0, 1)),
    _served("get_telemetry_subscriptions", Versions(0, 0)),
    _served("push_telemetry", Versions(0, 0)),
    _served("controller_registration", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("assign_replicas_to_dirs", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("list_config_resources", Versions(0, 1)),
    _served("describe_topic_partitions", Versions(0, 0)),
    _served("share_group_heartbeat", Versions(1, 1), preload=_NONE),
    _served("share_group_describe", Versions(1, 1), preload=_NONE),
    _served("describe_share_group_offsets", Versions(0, 1), preload=_NONE),
    _served("alter_share_group_offsets", Versions(0, 0), preload=_NONE),
    _served("delete_share_group_offsets", Versions(0, 0), preload=_NONE),
    _served("add_raft_voter", Versions(0, 1), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_PEERS),
    _served("remove_raft_voter", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION, preload=_PEERS),
    _served("update_raft_voter", Versions(0, 0), listeners=CONTROLLER, preload=_PEERS),
    _served("initialize_share_group_state", Versions(0, 0), preload=_NONE),
    _served("read_share_group_state", Versions(0, 0), preload=_NONE),
    _served("write_share_group_state", Versions(0, 1), preload=_NONE),
    _served("delete_share_group_state", Versions(0, 0), preload=_NONE),
    _served("read_share_group_state_summary", Versions(0, 1), preload=_NONE),
    _served("streams_group_heartbeat", Versions(0, 1), preload=_NONE),
    _served("streams_group_describe", Versions(0, 1), preload=_NONE),
    _served("streams_group_topology_description_update", Versions(0, 0), preload=_NONE),
    _served("unregister_controller", Versions(0, 0), listeners=BOTH, forwarding=_BY_CONNECTION),
    _served("share_fetch", Versions(1, 2), preload=_NONE),
    _served("share_acknowledge", Versions(1, 2), preload=_NONE),
)

_REGISTRATIONS: Final = {row.api_key: row for row in _ROWS}
