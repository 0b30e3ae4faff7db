"""The current leader of a partition, for responses that name it (KIP-951)."""

from __future__ import annotations

from kbroker.handlers.common.context import RequestContext
from kbroker.value_types import NamedTuple


class CurrentLeader(NamedTuple):
    """``host`` is ``None`` when the leader is unknown or does not listen where the client is."""

    leader_id: int
    leader_epoch: int
    host: str | None = None
    port: int = -1
    rack: str | None = None


def current_leader(ctx: RequestContext, topic: str, partition: int) -> CurrentLeader:
    """The leader by the metadata image, with its address on the listener that the request came through."""
    image = ctx.services.metadata.image
    found = image.topics.partition(topic, partition)
    if found is None:
        return CurrentLeader(-1, -1)
    broker = image.brokers.get(found.leader)
    endpoint = broker.endpoints.get(ctx.connection.listener_name) if broker is not None else None
    if broker is None or endpoint is None:
        return CurrentLeader(found.leader, found.leader_epoch)
    return CurrentLeader(found.leader, found.leader_epoch, endpoint.host, endpoint.port, broker.rack)
