"""A topic that is made anew: as it was, and nobody else's is deleted for it."""

from __future__ import annotations

import threading

import pytest

from kbroker.client import Client, ResponseError
from kbroker.client.topics import NewTopic, create_topics, describe_topics, recreate_topic
from kbroker.testing import running_broker
from tests.patience import LONG


def topic_id(client: Client, name: str) -> object:
    found = describe_topics(client, [name])[name]
    assert not isinstance(found, ResponseError)
    return found.topic_id


def test_a_topic_that_somebody_else_has_made_meanwhile_stays() -> None:
    with (
        running_broker() as broker,
        Client(broker.bootstrap_servers, client_id="one") as client,
        Client(broker.bootstrap_servers, client_id="another") as other,
    ):
        create_topics(client, [NewTopic("orders", 3, 1)])
        old = topic_id(client, "orders")
        errors: list[ResponseError] = []

        def recreate() -> None:
            try:
                recreate_topic(client, "orders")
            except ResponseError as error:
                errors.append(error)

        # The first request only asks whether the topic could be created.
        with broker.faults.hold("CreateTopics", client_id="^one$", nth=2) as held:
            thread = threading.Thread(target=recreate)
            thread.start()
            held.wait()
            create_topics(other, [NewTopic("orders", 1, 1)])
            theirs = topic_id(other, "orders")
        thread.join(LONG)
        assert [error.name for error in errors] == ["TOPIC_ALREADY_EXISTS"]
        assert topic_id(other, "orders") == theirs != old


def test_what_could_not_be_created_is_not_deleted() -> None:
    with running_broker() as broker, broker.client() as client:
        create_topics(client, [NewTopic("orders", 3, 1)])
        old = topic_id(client, "orders")
        with pytest.raises(ResponseError, match="INVALID_PARTITIONS"):
            recreate_topic(client, "orders", -7)
        assert topic_id(client, "orders") == old
