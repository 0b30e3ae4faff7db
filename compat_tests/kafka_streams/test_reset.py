"""A Streams group is reset, and its application counts again: by kbroker's command and by Kafka's tool."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests.case import await_gone
from compat_tests.java_tools.driver import ToolDriver
from compat_tests.kafka_streams.app import StreamsApp
from compat_tests.kafka_streams.words import ROUNDS, Steps, counted, write
from tests.cli_command import Run, command_for
from tests.patience import LONG, eventually

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
    ),
    pytest.mark.skipif(not ROUNDS, reason="five starts of an application: KBROKER_COMPAT_STREAMS_FULL=1"),
]

GROUP = "again"
HOUR_MS = 3_600_000
INTERNAL = {f"{GROUP}-words-repartition", f"{GROUP}-totals-changelog"}


@pytest.fixture
def kb(bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command."""
    return command_for(bootstrap, monkeypatch, capsys)


@pytest.fixture
def steps(bootstrap: str) -> Iterator[Steps]:
    """The reader of all that the application counts."""
    reader = Steps(bootstrap)
    yield reader
    reader.close()


class World:
    """The application, which begins with an empty directory each time, and the two commands."""

    def __init__(
        self, bootstrap: str, apps: dict[str, StreamsApp], kb: Run, tools: ToolDriver, steps: Steps, directory: Path
    ) -> None:
        self.bootstrap = bootstrap
        self.apps = apps
        self.kb = kb
        self._tools = tools
        self.steps = steps
        self._directory = directory

    def count(self, *, of: int, begin: dict[str, int] | None = None) -> dict[str, int]:
        """Run the application until it has made so many steps more, and none besides."""
        name = f"app-{len(self.steps.read)}"
        settings = ("group.protocol=streams", "processing.guarantee=exactly_once_v2", "poll.ms=100")
        app = StreamsApp(self.bootstrap, GROUP, self._directory, name, *settings)
        self.apps["one"] = app
        before = len(self.steps.read)
        assert self.steps.go_on(lambda: len(self.steps.read) >= before + of), app.ask("tasks")
        self.refused_while_it_lives()
        self.apps.pop("one").close()
        eventually(lambda: self.kb("group", "describe", GROUP, "--json").json[0]["state"] == "Empty", "nobody is in it")
        return counted(self.steps.read[before:], begin)

    def refused_while_it_lives(self) -> None:
        """Neither command moves an offset while members are there."""
        offsets = self.offsets()
        refused = self.kb("group", "reset", GROUP, "--all-topics", "--to-earliest", "--execute", code=1)
        assert refused.err.endswith(f"kbroker: group {GROUP} has 1 member: stop them first\n"), refused
        shown = self.tool("--all-input-topics", "--to-earliest", "--execute")
        assert f"if the group '{GROUP}' is inactive, but the current state is Stable" in shown
        assert self.offsets() == offsets
        assert set(self.internal()) == INTERNAL

    def offsets(self) -> dict[int, int]:
        """The committed offset of each partition of the input."""
        [group] = self.kb("group", "describe", GROUP, "--json").json
        return {row["partition"]: row["current_offset"] for row in group["partitions"] if row["topic"] == "lines"}

    def internal(self) -> list[str]:
        """The application's own topics that there are."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return [name for name in admin.list_topics(timeout=LONG).topics if name.startswith(f"{GROUP}-")]

    def tool(self, *arguments: str) -> str:
        """Kafka's tool."""
        run = ("--bootstrap-server", self.bootstrap, "--reset-offsets", "--group", GROUP, *arguments)
        shown = self._tools.run("kafka-streams-groups", *run)
        return shown.out + shown.err

    def preview(self, *strategy: str) -> dict[int, int]:
        """The offsets that kbroker's command would set."""
        found = self.kb("group", "reset", GROUP, "--all-topics", *strategy, "--dry-run", "--json").json
        assert set(found["internal_topics"]) == INTERNAL and not found["executed"]
        return {row["partition"]: row["new_offset"] for row in found["partitions"] if row["topic"] == "lines"}

    def preview_of_the_tool(self, *strategy: str) -> dict[int, int]:
        """The offsets that Kafka's tool would set."""
        rows = [line.split() for line in self.tool("--all-input-topics", *strategy, "--dry-run").splitlines()]
        return {int(row[2]): int(row[3]) for row in rows if row[:2] == [GROUP, "lines"]}


@pytest.fixture
def world(
    bootstrap: str, apps: dict[str, StreamsApp], kb: Run, tools: ToolDriver, steps: Steps, tmp_path: Path
) -> World:
    return World(bootstrap, apps, kb, tools, steps, tmp_path / "state")


def test_an_application_counts_again_from_where_it_is_put(world: World) -> None:
    now_ms = time.time_ns() // 1_000_000
    old, new = now_ms - 10 * HOUR_MS, now_ms - HOUR_MS
    write(world.bootstrap, *["a b"] * 6, timestamp_ms=old)
    write(world.bootstrap, *["a c"] * 3, timestamp_ms=new)
    assert world.count(of=18) == {"a": 9, "b": 6, "c": 3}
    assert world.offsets() == {0: 3, 1: 3, 2: 3}

    # To the start, by kbroker: first only shown.
    begin = world.preview("--to-earliest")
    assert begin == world.preview_of_the_tool("--to-earliest") == {0: 0, 1: 0, 2: 0}
    shown = world.kb("group", "reset", GROUP, "--all-topics", "--to-earliest")
    assert shown.rows[1:] == [["lines", str(partition), "3", "0", "-3"] for partition in range(3)]
    assert shown.err.startswith("kbroker: internal topics keep what they have: again-totals-changelog, again-words-rep")
    assert shown.err.endswith("kbroker: nothing changed; give --execute to do it\n")
    assert world.offsets() == {0: 3, 1: 3, 2: 3} and set(world.internal()) == INTERNAL
    reset = ("group", "reset", GROUP, "--all-topics", "--delete-internal-topics", "--execute")
    shown = world.kb(*reset, "--to-earliest")
    assert shown.out.endswith(
        "3 offsets of group again are reset\ninternal topics deleted: again-totals-changelog, again-words-repartition\n"
    )
    assert "Delete the local state of the application, too" in shown.err
    for name in INTERNAL:
        await_gone(world.bootstrap, name)
    assert world.offsets() == begin
    assert world.count(of=18) == {"a": 9, "b": 6, "c": 3}

    # To a time, by Kafka's tool; both see the same offsets.
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime((old + 5 * HOUR_MS) / 1000))
    for strategy in (("--to-datetime", moment), ("--by-duration", "PT5H")):
        assert world.preview(*strategy) == world.preview_of_the_tool(*strategy) == {0: 2, 1: 2, 2: 2}
    world.tool("--all-input-topics", "--to-datetime", moment, "--delete-all-internal-topics", "--execute")
    for name in INTERNAL:
        await_gone(world.bootstrap, name)
    assert world.offsets() == {0: 2, 1: 2, 2: 2}
    assert world.count(of=6) == {"a": 3, "c": 3}

    # To a time, by kbroker. The topics stay, and with them the state: it goes on from there.
    found = world.kb("group", "reset", GROUP, "--all-topics", "--to-datetime", moment, "--execute", "--json").json
    assert found["executed"] and found["deleted_topics"] == []
    assert world.count(of=6, begin={"a": 3, "c": 3}) == {"a": 6, "c": 6}
    # Kafka's tool without its option for internal topics leaves them as well.
    world.tool("--all-input-topics", "--to-earliest", "--execute")
    assert world.offsets() == begin and set(world.internal()) == INTERNAL
    assert world.count(of=18, begin={"a": 6, "c": 6}) == {"a": 15, "b": 6, "c": 9}
