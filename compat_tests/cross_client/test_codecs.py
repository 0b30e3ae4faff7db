"""Every client reads every other's records: each codec as each library writes it, through the broker."""

from __future__ import annotations

import uuid

import pytest

from compat_tests.case import await_everywhere, numbered
from compat_tests.client import CODECS
from compat_tests.clients import NAMES, Clients, client_class, skip_without, unavailable
from tests.patience import eventually


def _pairs() -> list[object]:
    return [
        pytest.param(
            writer,
            codec,
            id=f"{writer}-{codec}",
            marks=pytest.mark.feature(writer, "Compression, read by all others", codec),
        )
        for writer in NAMES
        for codec in CODECS
    ]


@pytest.mark.nodes(3)
@pytest.mark.parametrize(("writer", "codec"), _pairs())
def test_codec_across_clients(writer: str, codec: str, clients: Clients, bootstrap: str) -> None:
    skip_without(writer)
    if f"codec_{codec}" not in client_class(writer).features:
        pytest.skip(f"{writer} has no {codec}")
    topic = f"compat-cross-{uuid.uuid4().hex[:10]}"
    clients["confluent-kafka"].create_topic(topic)
    eventually(lambda: topic in clients["confluent-kafka"].list_topics(), f"{topic} in the topic list")
    await_everywhere(bootstrap, topic)
    records = numbered(120, size=150)
    clients[writer].produce(topic, records, compression=codec, linger_ms=50)
    contents = [record.content() for record in records]
    readers = 0
    for reader in NAMES:
        if unavailable(reader) is None and {"read", f"codec_{codec}"} <= clients[reader].features:
            read = clients[reader].read(topic, 0, 0, len(records))
            assert [record.content() for record in read] == contents, f"{reader} reads {writer}'s {codec}"
            readers += 1
    assert readers >= 2
