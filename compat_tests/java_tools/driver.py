"""Kafka's command-line tools in one long-lived JVM (``ToolDriver.java``): a process for each run would take minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_tests.apache_kafka import KAFKA_VERSION, java_command, tool_class, tool_jars
from compat_tests.java.client import compiled
from compat_tests.line_driver import LineDriverClient
from tests.patience import LONG


@dataclass(frozen=True, slots=True)
class Output:
    """The outcome of a tool's run."""

    exit: int
    out: str
    err: str


class ToolDriver(LineDriverClient):
    """The tools, run one after another, and members of groups that stay until they are told to leave."""

    def __init__(self, bootstrap: str, version: str = KAFKA_VERSION) -> None:
        classes = compiled(Path(__file__).with_name("ToolDriver.java"), KAFKA_VERSION)
        class_path = [classes, *tool_jars(version)]
        super().__init__(java_command("ToolDriver", class_path=class_path, version=version), bootstrap)

    def run(self, name: str, *arguments: str, stdin: str = "", timeout: float = LONG) -> Output:
        """Run the tool `name` to its end."""
        result: dict[str, Any] = self.call("tool", timeout, main=tool_class(name), args=list(arguments), stdin=stdin)
        return Output(result["exit"], result["out"], result["err"])

    def join(
        self,
        group: str,
        configs: Mapping[str, str],
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        commit: int | None = None,
    ) -> None:
        """Add a consumer to `group`; back when it has partitions, and `commit` committed for each if that is given."""
        fields: dict[str, Any] = {"group": group, "configs": {"bootstrap.servers": self._bootstrap, **configs}}
        if pattern is None:
            fields["topics"] = list(topics)
        else:
            fields["pattern"] = pattern
        if commit is not None:
            fields["commit"] = commit
        self.call("join", 300, **fields)

    def leave(self) -> None:
        """Let all members leave."""
        self.call("leave", 300)
