"""load.c and load_python.py: the same arguments, the same answers, against a peer that only echoes success."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import LONG, eventually

pytest.importorskip("confluent_kafka", reason="the `bench` extra is not installed")

from benchmarks.clients import Load, LoadError
from benchmarks.steady_load import COUNTER, counter
from tests.client.fake_broker import end_accepting

REQUEST = struct.pack(">ihhi", 20, 0, 7, 0) + b"x" * 12


class Peer:
    """Answers each 24-byte request with its correlation id and an error code."""

    def __init__(self, error_code: int) -> None:
        self._error = struct.pack(">h", error_code)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while request := connection.recv(len(REQUEST), socket.MSG_WAITALL):
                    body = request[8:12] + self._error
                    # In two pieces, as a network may deliver it.
                    connection.sendall(struct.pack(">i", len(body)) + body[:3])
                    connection.sendall(body[3:])
            except OSError:
                return

    def close(self) -> None:
        end_accepting(self._listening, self._thread)


@pytest.fixture(params=["C", "Python"], scope="module")
def load(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Load:
    made = Load(tmp_path_factory.mktemp("load"), compiled=request.param == "C")
    if request.param == "C" and not made.is_compiled:
        pytest.skip("no C compiler here")
    return made


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    path = tmp_path / "frames"
    path.write_bytes(REQUEST)
    return path


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    made = Peer(getattr(request, "param", 0))
    yield made
    made.close()


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_requests_are_answered_on_every_connection(load: Load, peer: Peer, frames: Path, seconds: float) -> None:
    """Also where the time is over before the first answer: a peer may get no turn for so long."""
    result = load.run("requests", peer.port, frames, 1, 5, seconds, 4)
    assert result["requests"] >= 5
    assert seconds <= result["seconds"] < 100


def test_answers_are_counted_while_the_load_runs(load: Load, peer: Peer, frames: Path, tmp_path: Path) -> None:
    with counter(tmp_path / "count") as shared:
        with load.running("requests", peer.port, frames, 1, 2, 600, 4, tmp_path / "count"):
            eventually(lambda: COUNTER.unpack(shared[:])[0] >= 10)
        assert COUNTER.unpack(shared[:])[0] >= 10


@pytest.mark.parametrize("peer", [3], indirect=True)
def test_a_load_that_ends_too_early_says_why(load: Load, peer: Peer, frames: Path, tmp_path: Path) -> None:
    arguments = ("requests", peer.port, frames, 1, 1, 600, 4, tmp_path / "count")
    with (
        counter(tmp_path / "count"),
        pytest.raises(LoadError, match="error code 3"),
        load.running(*arguments) as process,
    ):
        process.wait(LONG)


@pytest.mark.parametrize("peer", [3], indirect=True)
def test_an_error_code_ends_the_run(load: Load, peer: Peer, frames: Path) -> None:
    with pytest.raises(LoadError, match="error code 3"):
        load.run("requests", peer.port, frames, 1, 1, 0, 4)


def test_a_client_setting_that_does_not_exist_is_refused(load: Load) -> None:
    with pytest.raises(LoadError, match=r"no\.such\.setting"):
        load.run("produce", "127.0.0.1:1", "topic", 1, 1, "no.such.setting=1")
