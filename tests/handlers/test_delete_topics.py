"""The topics that a DeleteTopics request chooses, however many it names."""

from __future__ import annotations

import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.topics import _choose
from kbroker.raft_metadata.image import EMPTY_IMAGE
from kbroker.types import Uuid
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState

compared = 0


class Name(str):
    """Counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        global compared
        compared += 1
        return str.__eq__(self, other)


class Id(bytes):
    """Counts how often it is compared."""

    __slots__ = ()
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        global compared
        compared += 1
        return bytes.__eq__(self, other)


def test_names_and_ids_are_not_each_compared_with_all_others() -> None:
    global compared
    compared = 0
    count = 1000
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=Uuid(Id(index.to_bytes(16, "big")))) for index in range(1, count + 1)
        ],
        topic_names=[Name(f"t{index}") for index in range(count)],
    )

    async def all_of(names: list[str]) -> tuple[set[str], set[str]]:
        return set(names), set(names)

    chosen, refused = trio.run(_choose, request, EMPTY_IMAGE, all_of)
    assert not chosen
    assert [answer.error_code for answer in refused] == [ErrorCode.UNKNOWN_TOPIC_ID] * count + [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ] * count
    assert compared < 20 * count
