"""Kafka Connect with two workers: a file through a topic into a file, exactly once into the topic while a worker and a
node are killed; then the connectors' offsets are moved and forgotten by REST."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message

from compat_tests.brokers import Broker
from compat_tests.works_with.connect import Worker, await_lines, run_script
from compat_tests.works_with.judge import committed, leader, place_of, read, read_all, text_of, topics_of
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import wait_until

pytestmark = pytest.mark.kafka
LINES = 3000
SINK_GROUP = "connect-lines-sink"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the two files."""
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def workers(program: Program, bootstrap: str, folder: Path) -> Iterator[dict[str, Worker]]:
    """Two workers by their ids in answers."""
    with Worker(program, bootstrap, folder, "worker-1") as one, Worker(program, bootstrap, folder, "worker-2") as other:
        for worker in (one, other):
            worker.await_ready()
        yield {worker.worker_id: worker for worker in (one, other)}


@contextmanager
def growing(path: Path, lines: list[str]) -> Iterator[Callable[[int], None]]:
    """Appends lines to a file, a few at a time; yields a function that waits until so many are there."""
    stopped, written = threading.Event(), 0

    def write() -> None:
        nonlocal written
        with path.open("a") as file:
            for line in lines:
                file.write(line + "\n")
                file.flush()
                written += 1
                if written % 10 == 0 and stopped.wait(0.1):
                    return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lambda count: wait_until(lambda: written >= count, f"{count} lines written")
        thread.join()
    finally:
        stopped.set()
        thread.join()


def topic_lines(bootstrap: str, count: int) -> list[str]:
    """The lines in the topic, in order, once there are so many."""
    return [text_of(message.value()) for message in read(bootstrap, "lines", count)]


def test_exactly_once_while_a_worker_and_a_node_are_killed(
    program: Program, broker: Broker, workers: dict[str, Worker], folder: Path, seen: Callable[..., None]
) -> None:
    bootstrap = broker.bootstrap
    first = next(iter(workers.values()))
    lines = [f"line {number}" for number in range(LINES)]
    with growing(folder / "in.txt", lines) as await_written:
        run_script(program, "connectors.sh", CONNECT=first.address)
        victim = workers[first.await_running("lines-source")]
        survivor = next(worker for worker in workers.values() if worker is not victim)
        await_written(LINES // 3)
        victim.kill()
        assert survivor.await_running("lines-source", without=victim.worker_id) == survivor.worker_id
        assert survivor.await_running("lines-sink", without=victim.worker_id) == survivor.worker_id
        await_written(LINES * 2 // 3)
        with without_a_node(broker, leader(bootstrap, "lines")):
            await_written(LINES)
    victim.launch()
    victim.await_ready()

    assert topic_lines(bootstrap, LINES) == lines
    wait_until(lambda: set((folder / "out.txt").read_text().splitlines()) == set(lines), "all lines in the sink's file")
    names = {name: count for name, count in topics_of(bootstrap).items() if name.startswith("connect-")}
    assert names["connect-configs"] == 1 and names["connect-offsets"] == 25 and names["connect-status"] == 5
    seen(
        f"{LINES} lines of a file are in the topic once each and in order, though the source's worker was killed, and "
        "then the node that leads the topic",
        f"the sink wrote all {LINES} lines to a file",
        "Connect made its topics: " + ", ".join(f"`{name}` (partitions: {names[name]})" for name in sorted(names)),
    )


def test_offsets_are_moved_and_forgotten(
    program: Program, bootstrap: str, workers: dict[str, Worker], folder: Path, seen: Callable[..., None]
) -> None:
    # The worker that is asked is not always the leader: workers pass requests on.
    for address in [worker.address for worker in workers.values()]:
        lines = (folder / "in.txt").read_text().splitlines()
        records = settled(bootstrap)
        before = [text_of(record.value()) for record in records]
        out = len((folder / "out.txt").read_text().splitlines())
        again = lines[-100:]
        position = (folder / "in.txt").stat().st_size - len("\n".join(again)) - 1
        offset = place_of(records[-50])[1]
        environment = {"CONNECT": address, "FOLDER": str(folder)}
        run_script(program, "move_offsets.sh", POSITION=str(position), OFFSET=str(offset), **environment)
        assert offsets_of(workers, "lines-source") == [
            {"partition": {"filename": f"{folder}/in.txt"}, "offset": {"position": position}}
        ]
        assert committed(bootstrap, SINK_GROUP) == {("lines", 0): offset}
        run_script(program, "resume.sh", CONNECT=address)
        assert topic_lines(bootstrap, len(before) + 100) == before + again
        assert await_lines(folder / "out.txt", out + 150)[out:] == before[-50:] + again

    before = [text_of(record.value()) for record in settled(bootstrap)]
    out = len((folder / "out.txt").read_text().splitlines())
    run_script(program, "reset_offsets.sh", **environment)
    assert offsets_of(workers, "lines-source") == [] == offsets_of(workers, "lines-sink")
    assert committed(bootstrap, SINK_GROUP) == {}
    run_script(program, "resume.sh", CONNECT=address)
    wanted = before + lines
    assert topic_lines(bootstrap, len(wanted)) == wanted
    assert await_lines(folder / "out.txt", out + len(wanted))[out:] == wanted
    seen(
        "PATCH of a connector's offsets: the source read its last 100 lines once more, the sink the last 50 records",
        f"DELETE of the offsets: the source read all {len(lines)} lines again, the sink all {len(wanted)} records",
    )


def settled(bootstrap: str) -> list[Message]:
    """The records in the topic, once the sink has committed all of them."""
    records = read_all(bootstrap, "lines")
    wanted = {("lines", 0): place_of(records[-1])[1] + 1}
    wait_until(lambda: committed(bootstrap, SINK_GROUP) == wanted, "all lines in the sink")
    return records


def offsets_of(workers: dict[str, Worker], connector: str) -> list[object]:
    """A connector's offsets, which all workers tell alike."""
    (one, other) = (worker.ask("GET", f"/connectors/{connector}/offsets") for worker in workers.values())
    assert one == other and isinstance(one, dict)
    offsets: list[object] = one["offsets"]
    return offsets
