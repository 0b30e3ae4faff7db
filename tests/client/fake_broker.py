"""A broker that answers as it is told, request by request, for what a real one does only in trouble."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import pytest

from kbroker.client import ClientError
from kbroker.wire.compiler import decode
from kbroker.wire.framing import FrameReader, response_parts
from kbroker.wire.headers import decode_request_header
from kbroker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kbroker.wire.registry import API_KEYS

Answer = Callable[[Any, int], Any]
"""(request, version) -> response; None closes the connection, ``SILENCE`` answers nothing."""

SILENCE = object()


def end_accepting(listener: socket.socket, thread: threading.Thread) -> None:
    """Close a listener on which a thread waits, once that has ended.

    Otherwise the port would still be listened on, and a thread that has to begin its wait again (a process that was
    stopped and goes on does that) would do so on whatever has got the descriptor meanwhile: a later test's listener.
    """
    with suppress(OSError):  # it is no connection, where the system asks for one
        listener.shutdown(socket.SHUT_RDWR)
    if sys.platform != "linux":  # elsewhere closing wakes the thread
        listener.close()
    thread.join()
    listener.close()


class FakeBroker:
    """Broker 1 of a cluster of one, with the topic ``t`` of two partitions; ``answers``: request class -> answer.

    ``requests`` is what came, in order, as (class name, version, request).
    """

    def __init__(self, answers: dict[type[Any], Answer] | None = None, *, partitions: int = 2) -> None:
        self.answers: dict[type[Any], Answer] = {MetadataRequest: self.metadata, **(answers or {})}
        self.partitions = partitions
        self.versions = {key: api.stable_versions for key, api in API_KEYS.items()}
        self.highest_api_versions = 4
        self.requests: list[tuple[str, int, Any]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._connections: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_accepting(self._listener, self._accepting)
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread has an end, too
            connection.close()

    def names(self) -> list[str]:
        """The requests that came, but for ApiVersions and Metadata."""
        return [name for name, _, _ in self.requests if name not in ("ApiVersions", "Metadata")]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        try:
            while data := connection.recv(1 << 16):
                reader.receive(data)
                for frame in reader:
                    if not self._answer(connection, frame):
                        connection.close()
                        return
        except OSError:
            return

    def _answer(self, connection: socket.socket, frame: memoryview) -> bool:
        header, offset = decode_request_header(frame)
        version = header.api_version
        if header.api_key == ApiVersionsRequest.api_key:
            self.requests.append(("ApiVersions", version, None))
            known = [
                ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()
            ]
            response: Any = ApiVersionsResponse(api_keys=known)
            if version > self.highest_api_versions:
                response.error_code, version = 35, 0
                response.api_keys = [ApiVersion(api_key=18, min_version=0, max_version=self.highest_api_versions)]
        else:
            api = API_KEYS[header.api_key]
            request, _ = decode(api.request, version, frame, offset)
            self.requests.append((api.name, version, request))
            answer = self.answers.get(api.request)
            assert answer is not None, f"nobody said what to answer to {api.name}"
            response = answer(request, version)
        if response is SILENCE:
            return True
        if response is None:
            return False
        parts = response_parts(header.api_key, version, header.correlation_id, response)
        connection.sendall(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]
        return True

    def metadata(self, request: Any, version: int) -> MetadataResponse:
        """The broker's own metadata."""
        names = ["t"] if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="fake",
            controller_id=1,
            topics=[
                MetadataResponseTopic(name=name, error_code=3)
                if name != "t"
                else MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                        for index in range(self.partitions)
                    ],
                )
                for name in names
            ],
        )


def with_time(test: Callable[[float], None], *seconds: float) -> None:
    """Run a test that is about the end of a client's time, given in seconds.

    It is run again with more of it, where a machine was so slow that the client did not get as far as it was to.
    """
    for time in seconds[:-1]:
        try:
            test(time)
        except (AssertionError, ClientError, pytest.fail.Exception):
            continue
        return
    test(seconds[-1])
