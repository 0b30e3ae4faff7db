"""Values and functions that the handlers of the metadata plane share. Not an API itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext
    from kbroker.handlers.services.quotas import MutationQuota

NOT_ASKED = -(2**31)
"""``..._authorized_operations`` that were not asked for."""

_STANDARD_MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
        "partition."
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: "The coordinator rejected the request because the state epoch did not match.",
}


def standard_message(code: ErrorCode) -> str | None:
    """Kafka's text for an error that comes without one of its own."""
    return _STANDARD_MESSAGES.get(code)


class Located(NamedTuple):
    """A broker as a client on some listener can reach it."""

    broker: BrokerImage
    endpoint: Endpoint


def reachable_brokers(
    image: MetadataImage, listener: str, too: Collection[int] = (), *, with_fenced: bool = False
) -> list[Located]:
    """Brokers that have the listener, in id order; unfenced ones, and those in ``too``, unless asked for all."""
    found = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None and (with_fenced or not broker.fenced or broker_id in too):
            found.append(Located(broker, endpoint))
    return found


def reachable(image: MetadataImage, broker_id: int, listener: str) -> bool:
    """Whether the broker is unfenced and has the listener."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and listener in broker.endpoints


def offline_replicas(image: MetadataImage, partition: PartitionImage, listener: str) -> list[int]:
    """Replicas whose broker is gone, fenced or not on the listener, or whose disk is."""
    return [
        broker_id
        for broker_id in partition.replicas
        if not reachable(image, broker_id, listener)
        or not image.brokers[broker_id].has_online_dir(partition.directory(broker_id))
    ]


def some_broker_id(image: MetadataImage, preferred: int) -> int:
    """The id that clients take for the controller's: any live broker forwards to it (Kafka gives a random one).
    This node's own, if it is alive; -1 if none is."""
    own = image.brokers.get(preferred)
    if own is not None and not own.fenced:
        return preferred
    alive = image.alive_brokers()
    return alive[0].id if alive else -1


def duplicates(names: Iterable[str]) -> list[str]:
    """Names that occur more than once, each once, in order."""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for name in names:
        if name in seen:
            twice[name] = None
        seen.add(name)
    return list(twice)


def error_fields(error: ApiError | None) -> tuple[int, str | None]:
    """``(error_code, error_message)`` of a result."""
    return (0, None) if error is None else (int(error.code), error.message)


class _Unlimited:
    """The quota of a client that has none."""

    throttle_ms: Final = 0

    def anew(self) -> Callable[[int], None]:
        """Any number will do."""
        return lambda partitions: None


_UNLIMITED: Final = _Unlimited()


def mutation_quota(ctx: RequestContext, *, strict_since: int) -> MutationQuota:
    """The quota of a request's client, as the active controller counts it.

    From version ``strict_since`` on changes beyond it are refused; before, the client is throttled afterwards. What a
    node asks on its own account has none.
    """
    quotas = ctx.services.quotas.clients
    if quotas is None or ctx.is_own:
        return _UNLIMITED
    return quotas.mutations(ctx, strict_since) or _UNLIMITED
