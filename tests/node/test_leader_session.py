"""The requests of a follower's session with a leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.node.replicas.leader_session import Followed, Key, LeaderSession, Position
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.compiler import decode, encode
from kbroker.wire.messages.fetch import FetchRequest

CONFIG: Any = SimpleNamespace(
    replica_fetch_max_bytes=1 << 20, replica_fetch_response_max_bytes=10 << 20, replica_fetch_min_bytes=1
)


def test_more_topics_than_a_request_may_name_are_named_in_several() -> None:
    """A leader takes 100,000 elements of a request, its topics and their partitions; it would be refused for ever."""
    positions: dict[Key, Position] = {}
    for number in range(60_000):
        key = TopicPartition(f"t{number}", 0)
        partition: Any = SimpleNamespace(
            topic_partition=key, topic_id=Uuid(number.to_bytes(16, "big")), state=SimpleNamespace(leader_epoch=1)
        )
        followed = Followed(partition)
        followed.accepted = True
        positions[key] = Position(followed, 0, -1, 0, False)
    session = LeaderSession(CONFIG, 1, lambda: 1)
    session.reset(positions)
    named: list[bytes] = []
    for held_ms in (0, 500, 500):
        request, _ = decode(FetchRequest, 15, encode(session.request(15, positions.get, lambda: 500), 15))
        assert request.max_wait_ms == held_ms, "the others are asked for at once"
        named += [topic.topic_id for topic in request.topics]
        session.answered(7)
    assert len(named) == len(set(named)) == len(positions)
