"""Bytewax: a word count from topic to topic; killed and resumed from its snapshots, and a node killed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Message

from compat_tests.brokers import Broker
from compat_tests.works_with.judge import create_topics, end_offsets, leader, read_until, text_of, write
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running

WORDS = ("apple", "birch", "cedar", "date", "elder")


def line(number: int) -> tuple[None, str]:
    """The n-th line: one to five words."""
    return None, " ".join(WORDS[: number % len(WORDS) + 1])


def totals(lines: int) -> dict[str, int]:
    """The number of times that each word is in the first lines."""
    return {word: sum(1 for number in range(lines) if number % len(WORDS) >= place) for place, word in enumerate(WORDS)}


def steps(messages: list[Message]) -> list[tuple[str, int]]:
    """Words and counts in the order of the topic's only partition."""
    return [(text_of(message.key()), int(message.value() or b"0")) for message in messages]


def test_words_are_counted(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"lines": 3, "counts": 1})
    recovery = tmp_path / "recovery"
    recovery.mkdir()
    subprocess.run([program.python(), "-m", "bytewax.recovery", recovery, "1"], check=True)
    options: list[str | Path] = ["--recovery-directory", recovery, "--snapshot-interval", "1", "--backup-interval", "0"]
    command = [program.python(), "-m", "bytewax.run", "recipe:flow", *options]
    environment = {"KAFKA": bootstrap, "PYTHONPATH": str(program.folder)}

    def start() -> Running:
        return Running(command, tmp_path, "flow", environment)

    def read_totals(lines: int) -> list[tuple[str, int]]:
        goal = totals(lines)
        found = steps(read_until(bootstrap, "counts", lambda found: goal.items() <= dict(steps(found)).items(), 90))
        assert dict(found) == goal
        return found

    with start() as flow:
        write(bootstrap, "lines", (line(number) for number in range(1000)))
        first = read_totals(1000)
        # Without a crash, each step of each count is there once.
        assert sorted(first) == sorted(
            (word, count + 1) for word, total in totals(1000).items() for count in range(total)
        )
        write(bootstrap, "lines", (line(number) for number in range(1000, 4000)))
        written = sum(totals(1000).values())
        flow.until(lambda: end_offsets(bootstrap, "counts")["counts", 0] > written, "to count on")
        flow.kill()
    with start() as flow:
        read_totals(4000)
        with without_a_node(broker, leader(bootstrap, "counts")):
            write(bootstrap, "lines", (line(number) for number in range(4000, 5000)))
            found = read_totals(5000)
        flow.kill()
    goal = totals(5000)
    assert {count for word, count in found if word == "apple"} == set(range(1, goal["apple"] + 1))
    seen(
        f"1000 lines: each of the {len(first)} steps of five counts was written once",
        "killed (SIGKILL) while it worked and resumed from its snapshots, then the leader of `counts` killed: after "
        f"5000 lines all counts are right (`apple` {goal['apple']}), {len(found) - sum(goal.values())} steps were "
        "written twice, and none is missing",
    )
