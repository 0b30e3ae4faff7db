"""Faust: an agent with a table, in two workers; stopped and started again, its table comes back from the changelog."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Message

from compat_tests.brokers import Broker
from compat_tests.works_with.judge import (
    await_no_lag,
    config_of,
    coordinator,
    create_topics,
    members,
    read,
    text_of,
    topics_of,
    write,
)
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until

GROUP = "clicks"
PAGES = 10


def click(number: int) -> tuple[str, str]:
    """Key and value of the n-th click."""
    page = f"page-{number % PAGES}"
    return page, json.dumps({"page": page})


def steps(messages: list[Message]) -> Counter[tuple[str, int]]:
    """(page, count) -> so many times it was told."""
    return Counter((text_of(message.key()), json.loads(message.value() or b"0")) for message in messages)


def wanted(clicks: int) -> Counter[tuple[str, int]]:
    """Each step of each count, once."""
    return Counter((click(number)[0], number // PAGES + 1) for number in range(clicks))


def test_clicks_are_counted_in_a_table(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"clicks": 4, "totals": 4})
    environment = {"KAFKA": bootstrap, "PYTHONPATH": str(program.folder), "REPLICAS": str(min(3, node_count(broker)))}
    faust: list[str | Path] = [program.python().with_name("faust"), "-A", "recipe"]

    def start(name: str) -> Running:
        command = [*faust, "--datadir", tmp_path / name, "worker", "--without-web", "-l", "info"]
        return Running(command, tmp_path, name, environment)

    with start("one") as one:
        write(bootstrap, "clicks", (click(number) for number in range(1000)))
        await_no_lag(bootstrap, GROUP, "clicks", 120)
        assert steps(read(bootstrap, "totals", 1000)) == wanted(1000)
        assert one.stop() == 0
    with start("one") as one, start("two") as two:
        one.until(lambda: len(members(bootstrap, GROUP)) == 2, "to be two workers")
        one.await_output("Worker ready")
        two.await_output("Worker ready")
        write(bootstrap, "clicks", (click(number) for number in range(1000, 2000)))
        await_no_lag(bootstrap, GROUP, "clicks", 120)
        assert steps(read(bootstrap, "totals", 2000)) == wanted(2000)
        assert two.stop() == 0
        wait_until(lambda: len(members(bootstrap, GROUP)) == 1, "one worker")
        with without_a_node(broker, coordinator(bootstrap, GROUP)):
            write(bootstrap, "clicks", (click(number) for number in range(2000, 3000)))
            await_no_lag(bootstrap, GROUP, "clicks", 120)
        assert one.stop() == 0
    assert steps(read(bootstrap, "totals", 3000)) == wanted(3000)

    changelog = "clicks-counts-changelog"
    assert "compact" in config_of(bootstrap, changelog)["cleanup.policy"]
    latest = {text_of(message.key()): text_of(message.value()) for message in read(bootstrap, changelog, 1)}
    assert len(latest) == PAGES
    seen(
        "1000 clicks of ten pages: each step of each count was told once; the worker was stopped, and two started, "
        f"with nothing but the changelog topic `{changelog}` ({topics_of(bootstrap)[changelog]} partitions, compacted, "
        "created by Faust) to know the counts from",
        "the two shared the partitions; one was stopped, and the coordinator of the group killed: after 3000 clicks, "
        "each step of each count was told once",
    )
