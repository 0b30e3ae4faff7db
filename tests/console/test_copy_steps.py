"""Steps of copies: what their outcomes say, and what is stored when another goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.errors import ApiNotServed
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics, delete_records, list_ranges
from kbroker.testing import RunningBroker
from kbroker.tools.console.api.copy_steps import ImportOrder, ReplayOrder
from kbroker.tools.console.record_range import RecordRange
from kbroker.tools.console.scan import RecordView
from kbroker.types import TopicPartition
from kbroker.wire.errors import EncodeError, WireError
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.patience import SHORT

COUNT = 300
ROWS = "".join(f'{{"value": "{number}"}}\n' for number in range(COUNT))


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers, timeout=SHORT) as made:
        create_topics(made, [NewTopic(name, 1, 1) for name in ("wire", "encode", "plain", "from", "to")])
        yield made


def stored(client: Client, topic: str) -> int:
    limits = list_ranges(client, [TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert isinstance(limits, tuple)
    return limits[1]


@pytest.mark.parametrize(("topic", "error"), [("wire", WireError("no bytes")), ("encode", EncodeError("no text"))])
def test_after_bytes_that_cannot_be_right_the_place_is_known(
    client: Client, monkeypatch: pytest.MonkeyPatch, topic: str, error: Exception
) -> None:
    whole = Producer.flush

    def broken(producer: Producer) -> None:
        whole(producer)
        raise error

    order = ImportOrder(topic, "jsonl", keeps_partitions=False)
    with monkeypatch.context() as patched:
        patched.setattr(Producer, "flush", broken)
        outcome = order.step(client, ROWS, 0, None)
    assert (outcome.error, outcome.stored, outcome.may_double) == (str(error), COUNT, 0)
    outcome = order.step(client, ROWS, 0, outcome.place)
    assert (outcome.error, outcome.stored, stored(client, topic)) == ("", 0, COUNT)


def test_what_a_producer_without_an_id_may_double_is_told(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_any = Client.ask_any

    def served(client: Client, request: Any, **more: Any) -> Any:
        if isinstance(request, InitProducerIdRequest):
            raise ApiNotServed("InitProducerId")
        return ask_any(client, request, **more)

    monkeypatch.setattr(Client, "ask_any", served)
    order = ImportOrder("plain", "jsonl", keeps_partitions=False)
    with Client(broker.bootstrap_servers, timeout=3) as impatient:
        impatient.partitions_of("plain")
        with broker.faults.drop("Produce", when="after", topic="plain"):
            outcome = order.step(impatient, ROWS, 0, None)
    assert outcome.error and outcome.may_double == COUNT
    assert order.step(client, ROWS, 0, outcome.place).stored == COUNT
    assert stored(client, "plain") >= 2 * COUNT


class Control:
    """Lets a step go on to its end."""

    def begun(self) -> None:
        """It is not refused."""

    def is_to_end(self) -> bool:
        """Never."""
        return False


def test_records_that_are_gone_before_a_replay_comes_to_them_are_told(client: Client) -> None:
    assert ImportOrder("from", "jsonl", keeps_partitions=False).step(client, ROWS, 0, None).stored == COUNT
    delete_records(client, {TopicPartition("from", 0): 10})
    order = ReplayOrder(RecordRange(RecordView("from"), None, "earliest"), "to", keeps_partitions=True)
    outcome = order.step(client, {0: 4}, {0: COUNT}, None, Control())
    assert outcome.notes == ["partition 0: offsets 4 to 9 are gone from the log"]
    count = outcome.stored
    while not outcome.finished:
        outcome = order.step(client, outcome.goon, outcome.ends, None, Control())
        count += outcome.stored
    assert count == COUNT - 10
