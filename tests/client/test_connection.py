"""One connection: agreeing on versions, answers in order, and peers that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker.client.connection import Connection
from kbroker.client.errors import ApiNotServed, ClientError, ConnectionFailed, RequestTimedOut
from kbroker.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from kbroker.wire.messages.metadata import MetadataRequest
from tests.client.fake_broker import SILENCE, FakeBroker
from tests.patience import SHORT


def connect(port: int, seconds: float = SHORT) -> Connection:
    return Connection("127.0.0.1", port, client_id="test", deadline=time.monotonic() + seconds)


@contextmanager
def raw_peer(answer: bytes) -> Iterator[int]:
    """A port where whoever connects and sends something gets these bytes, and the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(SHORT)


@pytest.mark.parametrize("highest", [5, 4, 3, 2, 0])
def test_steps_down_to_the_broker_s_api_versions(highest: int) -> None:
    with FakeBroker() as broker:
        broker.highest_api_versions = highest
        connection = connect(broker.port)
        assert [version for _, version, _ in broker.requests] == ([5] if highest == 5 else [5, highest])
        assert connection.version_for(MetadataRequest) == 13
        connection.close()


def test_the_highest_version_of_both() -> None:
    with FakeBroker() as broker:
        broker.versions = {18: (0, 4), 3: (0, 9), 16: (9, 12)}  # type: ignore[dict-item]
        connection = connect(broker.port)
        assert connection.version_for(MetadataRequest) == 9
        assert connection.version_for(MetadataRequest, 7) == 7
        assert connection.serves(MetadataRequest) and not connection.serves(MetadataRequest, 10)
        with pytest.raises(ApiNotServed, match="ListGroups in versions 9 to 12, and this client speaks 0 to 5"):
            connection.version_for(ListGroupsRequest)
        del broker.versions[16]
        with pytest.raises(ApiNotServed, match="does not serve ListGroups"):
            connect(broker.port).version_for(ListGroupsRequest)
        connection.close()


def test_answers_come_in_the_order_of_requests_even_past_a_request_that_waits() -> None:
    answers = iter([ListGroupsResponse(error_code=1), ListGroupsResponse(error_code=2)])
    with FakeBroker({ListGroupsRequest: lambda request, version: next(answers)}) as broker:
        connection = connect(broker.port)
        deadline = time.monotonic() + SHORT
        connection.send(ListGroupsRequest())
        connection.send(ListGroupsRequest())
        assert connection.in_flight == 2 and not connection.has_response
        metadata = connection.request(MetadataRequest(topics=[]), deadline)
        assert metadata.cluster_id == "fake"
        assert connection.in_flight == 2 and connection.has_response
        assert [connection.receive(deadline).error_code for _ in range(2)] == [1, 2]
        assert connection.in_flight == 0
        connection.close()


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=rf"cannot connect to 127.0.0.1:{port}: Connection refused"):
        connect(port)
    with pytest.raises(ConnectionFailed, match=r"cannot connect to no.such.host.invalid:9092"):
        Connection("no.such.host.invalid", 9092, client_id="x", deadline=time.monotonic() + SHORT)


def test_a_peer_that_closes() -> None:
    with raw_peer(b"") as port, pytest.raises(ConnectionFailed, match=r"closed the connection|lost"):
        connect(port)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00",  # another correlation id
        b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00",  # cut short
        b"\xff\xff\xff\xff\x00\x00\x00\x01",
    ],
)
def test_a_peer_that_speaks_something_else(answer: bytes) -> None:
    with raw_peer(answer) as port, pytest.raises(ClientError, match=r"does not speak Kafka's protocol|closed"):
        connect(port)


def test_no_answer_in_time() -> None:
    with FakeBroker({ListGroupsRequest: lambda request, version: SILENCE}) as broker:
        connection = connect(broker.port)
        with pytest.raises(RequestTimedOut, match="did not answer ListGroups in time"):
            connection.request(ListGroupsRequest(), time.monotonic() + 0.05)
        assert connection.closed
        with pytest.raises(ConnectionFailed, match="lost"):
            connection.send(ListGroupsRequest())


def test_a_fake_broker_leaves_nobody_behind_who_would_listen_for_the_next() -> None:
    with FakeBroker() as broker:
        connect(broker.port).close()
    assert not broker._accepting.is_alive()
