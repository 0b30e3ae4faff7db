"""Every change that the page can ask for: none without ``--writes``, and each with a line in the audit log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.groups import commit_offsets
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.console.routes import API
from kbroker.testing import RunningBroker
from kbroker.types import TopicPartition
from kbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest
from kbroker.wire.record_batch import Record
from tests.console.console_process import Answer, ConsoleProcess, console_process

TOPIC = "changed"
OF_A_COPY = ("copies/piece", "copies/go-on", "copies/cancel", "copies/forget")
"""They go on with, or end, what one of the others has begun; without ``--writes`` there is nothing."""

NO_CHANGES = ("sign-in", "sign-out")

DOCUMENTS: dict[str, dict[str, object]] = {
    "topic/create": {"name": "made", "partitions": 1},
    "topic/config": {"name": TOPIC, "config": "retention.ms", "value": "1000"},
    "topic/partitions": {"name": TOPIC, "total": 3},
    "topic/move": {"topic": TOPIC, "replicas": {"0": "1"}},
    "topic/move/cancel": {"topic": TOPIC, "partitions": "0"},
    "topic/abort-hanging": {"topic": TOPIC, "partition": 0, "start_offset": 0, "confirm": "0"},
    "records/produce": {"topic": TOPIC, "value": "x"},
    "records/upload": {"topic": TOPIC, "data": ""},
    "copies/replay": {"topic": TOPIC, "to": TOPIC, "from": "latest"},
    "copies/import": {"topic": TOPIC},
    "group/reset": {"group": "g", "topic": TOPIC, "to": "earliest"},
    "group/delete": {"group": "g", "confirm": "g"},
    "transaction/abort": {"id": "t", "confirm": "t"},
    "topic/delete": {"name": TOPIC, "confirm": TOPIC},
    "faults": {"line": "list"},
}
"""A document for each path; those that follow can be carried out after those before."""
