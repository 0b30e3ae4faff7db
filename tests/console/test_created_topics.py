"""A topic that a page has created is there for the next: the broker that is asked may be the last to hear of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.errors import ErrorCode
from kbroker.tools.console.api import topics
from kbroker.types import ZERO_UUID

NOT_YET = ResponseError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t")
KNOWN = TopicDescription("t", ZERO_UUID, False, ())
GROWN = TopicDescription("t", ZERO_UUID, False, (PartitionDescription(0, 1, 0, (1,), (1,), ()),))
HIDDEN = ResponseError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t")


@pytest.mark.parametrize("last", [KNOWN, HIDDEN, ClientError("the broker is gone")], ids=["known", "hidden", "gone"])
def test_it_is_asked_for_until_it_is_known_or_cannot_be(
    monkeypatch: pytest.MonkeyPatch, last: TopicDescription | ClientError
) -> None:
    """It may be nobody's to see, and the broker may end: it is created all the same."""
    answers: list[TopicDescription | ClientError] = [NOT_YET, NOT_YET, last]

    def describe(client: Client, names: Sequence[str]) -> dict[str, TopicDescription | ClientError]:
        answer = answers.pop(0)
        if isinstance(answer, ClientError) and not isinstance(answer, ResponseError):
            raise answer
        return dict.fromkeys(names, answer)

    monkeypatch.setattr(topics, "describe_topics", describe)
    with Client("127.0.0.1:1") as client:
        topics.await_heard(client, "t")
    assert not answers


def test_partitions_that_were_added_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [KNOWN, KNOWN, GROWN]
    monkeypatch.setattr(topics, "describe_topics", lambda client, names: dict.fromkeys(names, answers.pop(0)))
    with Client("127.0.0.1:1") as client:
        topics.await_heard(client, "t", 1)
    assert not answers


def test_it_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "describe_topics", lambda client, names: dict.fromkeys(names, NOT_YET))
    with Client("127.0.0.1:1") as client:
        topics.await_heard(client, "t", seconds=0.05)
