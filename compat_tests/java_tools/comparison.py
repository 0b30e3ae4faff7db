"""The same command lines of Kafka's tools against two brokers, and what they print compared line by line."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from compat_tests.apache_kafka import tool
from compat_tests.brokers import Broker
from compat_tests.java_tools.differences import Difference
from compat_tests.java_tools.driver import Output, ToolDriver
from tests.patience import LONG

Rule = tuple[str, str]
"""A regular expression, and what to put in its place on both sides."""

T = TypeVar("T")

RULES: tuple[Rule, ...] = (
    (r"(?m)^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] ", ""),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "CLIENT-UUID"),
    (r"(?<![\w.-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[A-Za-z0-9_-]{22}(?![\w(-])", "UUID"),
    (r"\badminclient-\d+", "adminclient-N"),
    (r"\btest-group-\d+", "test-group-N"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "DATE"),
)
"""Replacements, in order, of text that differs between runs of one broker with any tool."""

PATIENCE: Mapping[str, Sequence[str]] = {
    "kafka-console-producer": ("--request-timeout-ms", "60000"),
    "kafka-consumer-groups": ("--timeout", "120000"),
}
"""Options of tools that otherwise give up on a broker that stands for a few seconds: 1.5, and 5."""

_ALTERNATIVES = re.compile(r"(takes one of these options: )(.*)")
"""Alternative options in an error, in the order of a hash set, which differs between JVMs."""


@dataclass(frozen=True, slots=True)
class Side:
    """A broker, the tools that talk to it, and a directory for files that they read and write."""

    broker: Broker
    tools: ToolDriver
    directory: Path

    def fill(self, text: str) -> str:
        """Put this side's addresses, directory of files and data directory where `text` says {server}, {controllers},
        {dir}, {data}."""
        text = text.replace("{server}", self.broker.bootstrap).replace("{dir}", str(self.directory))
        text = text.replace("{controllers}", getattr(self.broker, "controllers", "nowhere"))
        return text.replace("{data}", str(self.broker.data_dir))

    def run(self, name: str, *arguments: str, stdin: str = "", process: bool = False) -> Output:
        """Run a tool, the places in its arguments filled in; as a process of its own if that is asked for."""
        filled = [self.fill(argument) for argument in (*arguments, *PATIENCE.get(name, ()))]
        if not process:
            return self.tools.run(name, *filled, stdin=stdin)
        result = tool(name, *filled, stdin=stdin)
        return Output(result.returncode, result.stdout, result.stderr)

    def normalized(self, text: str, rules: Iterable[Rule]) -> str:
        """`text` without what is of this side or this run alone."""
        host, port = self.broker.bootstrap.rsplit(":", 1)
        text = re.sub(rf"(CONTROLLER://|controller\.quorum\S+=){re.escape(host)}:\d+", r"\1HOST:PORT", text)
        text = text.replace(str(self.directory), "{dir}").replace(str(self.broker.data_dir), "{data}")
        text = text.replace(self.fill("{controllers}"), "HOST:CONTROLLER")
        text = re.sub(rf"{re.escape(host)}(\D{{1,12}}){port}\b", r"HOST\1PORT", text)
        for pattern, replacement in (*rules, *RULES):
            text = re.sub(pattern, replacement, text)
        return _ALTERNATIVES.sub(lambda found: found[1] + ", ".join(sorted(found[2].split(", "))), text)


class Comparison:
    """Steps of one test, run on both sides at once and written down; `finish` tells whether they are the same.

    A step names the exit code that its tool must have on the judge: a case that does not do what it means to fails.
    """

    def __init__(self, ours: Side, theirs: Side, allowed: Sequence[Difference]) -> None:
        self.ours = ours
        self.theirs = theirs
        self._allowed = allowed
        self._texts: tuple[list[str], list[str]] = ([], [])
        self._wrong: list[str] = []
        self._pool = ThreadPoolExecutor(2)

    def both(self, action: Callable[[Side], T]) -> tuple[T, T]:
        """Run `action` on our side and on theirs at once, and return both results."""
        ours, theirs = self._pool.map(action, (self.ours, self.theirs))
        return ours, theirs

    def file(self, name: str, text: str) -> str:
        """Write `text` (places filled in) to a file on both sides; its path for an argument."""
        for side in (self.ours, self.theirs):
            (side.directory / name).write_text(side.fill(text))
        return f"{{dir}}/{name}"

    def run(
        self,
        name: str,
        *arguments: str,
        stdin: str = "",
        exit: int = 0,
        ordered: bool = True,
        aside: Sequence[Rule] = (),
        quiet: bool = False,
        process: bool = False,
    ) -> tuple[Output, Output]:
        """Run the tool `name` and compare, with `aside` replaced and, unless `ordered`, lines of output sorted.

        `quiet` compares the exit codes alone.
        """
        outputs = self.both(lambda side: side.run(name, *arguments, stdin=stdin, process=process))
        self._note([name, *arguments], outputs, exit, ordered, aside, quiet)
        return outputs

    def server(self, name: str, *arguments: str, **how: object) -> tuple[Output, Output]:
        """`run` for a tool that takes --bootstrap-server first."""
        return self.run(name, "--bootstrap-server", "{server}", *arguments, **how)  # type: ignore[arg-type]

    def server_until(self, pattern: str, name: str, *arguments: str, seconds: float = LONG, **how: object) -> None:
        """`server`, again and again until both outputs have `pattern`: the last ones are compared."""
        self.until(pattern, name, "--bootstrap-server", "{server}", *arguments, seconds=seconds, **how)

    def until(self, pattern: str, name: str, *arguments: str, seconds: float = LONG, **how: object) -> None:
        """`run`, again and again until both outputs have `pattern`: the last ones are compared."""
        deadline = time.monotonic() + seconds

        def last(side: Side) -> Output:
            while True:
                output = side.run(name, *arguments)
                if re.search(pattern, output.out + output.err) or time.monotonic() > deadline:
                    return output

        options: dict[str, object] = {"exit": 0, "ordered": True, "aside": (), "quiet": False, **how}
        outputs = self.both(last)
        self._note([name, *arguments], outputs, **options)  # type: ignore[arg-type]
        if not re.search(pattern, outputs[1].out + outputs[1].err):
            self._wrong.append(f"{' '.join(arguments)}: Apache Kafka never printed {pattern}")

    def topic(self, name: str, partitions: int = 1, *options: str, lines: Iterable[str] = ()) -> None:
        """Make a topic, wait until it can be described, write `lines` to it, a batch each; nothing is compared."""
        create = ("--create", "--topic", name, "--partitions", str(partitions), *options)
        self.server("kafka-topics", *create, quiet=True)
        self.server_until("PartitionCount", "kafka-topics", "--describe", "--topic", name, quiet=True)
        for line in lines:
            self.produce(name, line)

    def produce(self, topic: str, text: str, *options: str) -> None:
        """Write the lines of `text` to `topic` as `options` of the console producer say; nothing is compared."""
        self.server("kafka-console-producer", "--topic", topic, "--sync", *options, stdin=text + "\n", quiet=True)

    def note(self, title: str, ours: str, theirs: str, aside: Sequence[Rule] = ()) -> None:
        """Compare two texts that no tool printed."""
        self._note([title], (Output(0, ours, ""), Output(0, theirs, "")), 0, True, aside, False)

    def _note(
        self,
        command: Sequence[str],
        outputs: tuple[Output, Output],
        exit: int,
        ordered: bool,
        aside: Sequence[Rule],
        quiet: bool,
    ) -> None:
        title = " ".join(command).replace("--bootstrap-server {server} ", "")
        for side, output, text in zip((self.ours, self.theirs), outputs, self._texts, strict=True):
            text += [f"$ {title}"]
            if not quiet:
                text += _lines(side, output, ordered, aside)
            elif output.exit != exit:
                text += [f"  {output.out}{output.err}"]
            text += [f"  exit {output.exit}"]
        if outputs[1].exit != exit:
            self._wrong.append(f"{title}: exit code {outputs[1].exit}, not {exit}, on Apache Kafka")

    def finish(self) -> str:
        """List differences that are not allowed, allowed ones that were not seen, and wrong cases; empty if none."""
        return "\n".join([*self._wrong, *report(*self._texts, self._allowed)])

    def close(self) -> None:
        """Let go of the threads."""
        self._pool.shutdown()


def _lines(side: Side, output: Output, ordered: bool, rules: Sequence[Rule]) -> list[str]:
    # Stack traces are the tool's affair; the sentences before them are the broker's.
    err = [line for line in output.err.splitlines() if not re.match(r"\s+at |\s+\.\.\. \d+ more", line)]
    out = side.normalized(output.out, rules).splitlines()
    err = side.normalized("\n".join(err), rules).splitlines()
    if not ordered:
        # The tools put what is between the entries of a set before or behind a line: it moves with their order.
        out = sorted(line.strip() for line in out)
        err = sorted(line.strip() for line in err)
    err = [f"(error) {line}" for line in err]
    return [f"  {line}".rstrip() for line in (*out, *err)]


def report(ours: Sequence[str], theirs: Sequence[str], allowed: Sequence[Difference]) -> list[str]:
    """The differences that `allowed` does not cover, with the lines around them, and the allowed ones not met."""
    met: set[Difference] = set()
    left: list[str] = []
    matcher = difflib.SequenceMatcher(None, theirs, ours, autojunk=False)
    for kind, start, end, our_start, our_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        lines = [("apache", line) for line in theirs[start:end]]
        lines += [("kbroker", line) for line in ours[our_start:our_end]]
        uncovered = []
        for who, line in lines:
            covering = [difference for difference in allowed if difference.covers(who, line)]
            met.update(covering)
            if not covering:
                uncovered.append(f"{'-' if who == 'apache' else '+'} {line}")
        if uncovered:
            step = next(line for line in reversed(theirs[: start + 1]) if line.startswith("$"))
            if not left or step not in left:
                left.append(step)
            left += uncovered
    if left:
        left.insert(0, "- Apache Kafka   + this broker")
    left += [f"no longer so, take it out of differences.py: {d.reason}" for d in allowed if d not in met]
    return left
