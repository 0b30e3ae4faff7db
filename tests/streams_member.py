"""A member of a Streams group, by raw requests (KIP-1071)."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.client import Client
from kbroker.wire.messages.streams_groups import (
    HeartbeatSubtopology,
    HeartbeatTopology,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TopicInfo,
)

_ID = "m"


class StreamsMember:
    """The one thread of an application that reads ``sources`` and keeps what it knows in ``changelogs``."""

    def __init__(self, client: Client, group_id: str, sources: Sequence[str], changelogs: Sequence[str] = ()) -> None:
        self._client = client
        self._group_id = group_id
        self._parts = [
            HeartbeatSubtopology(
                subtopology_id="0",
                source_topics=list(sources),
                state_changelog_topics=[TopicInfo(name=name) for name in changelogs],
            )
        ]
        self._epoch = 0

    def join(self) -> None:
        """Be in the group."""
        self._send(
            StreamsGroupHeartbeatRequest(
                group_id=self._group_id,
                member_id=_ID,
                process_id="p",
                rebalance_timeout_ms=60_000,
                topology=HeartbeatTopology(epoch=1, subtopologies=self._parts),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
            )
        )

    def beat(self) -> None:
        """Stay in the group."""
        self._send(StreamsGroupHeartbeatRequest(group_id=self._group_id, member_id=_ID, member_epoch=self._epoch))

    def leave(self) -> None:
        """Be in the group no more."""
        self._epoch = -1
        self.beat()

    def _send(self, request: StreamsGroupHeartbeatRequest) -> None:
        self._epoch = self._client.ask_coordinator(self._group_id, request, _accept).member_epoch


def _accept(response: StreamsGroupHeartbeatResponse) -> None:
    assert response.error_code == 0, response
