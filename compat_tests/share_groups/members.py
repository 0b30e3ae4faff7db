"""Members of share groups: a Java process with Kafka's share consumers, which is asked by lines (ShareMembers.java)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.java.client import program

_SOURCE = Path(__file__).with_name("ShareMembers.java")


class MemberError(Exception):
    """A member's call failed, or the process ended."""


class Delivery(NamedTuple):
    """A record as a member gets it; ``delivery_count`` says how often it was handed out, this time included."""

    topic: str
    partition: int
    offset: int
    value: str
    delivery_count: int


class ShareMembers:
    """One process; each call names a member of it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(
            program(_SOURCE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def join(self, member: str, group: str, *topics: str, **properties: str) -> None:
        """A new member; its properties with underscores. It acknowledges explicitly unless they say otherwise."""
        settings = {"share_acknowledgement_mode": "explicit", "client_id": member, **properties}
        self._ask(
            "join",
            member,
            topics=topics,
            properties={
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
        )

    def poll(self, member: str, ms: int = 1000) -> list[Delivery]:
        """The records of one poll."""
        return [Delivery(**each) for each in self._ask("poll", member, ms=ms)]

    def acknowledge(self, member: str, deliveries: Iterable[Delivery], type: str = "ACCEPT") -> None:
        """Say what became of records; the next poll or commit carries it."""
        records = [(each.topic, each.partition, each.offset) for each in deliveries]
        self._ask("acknowledge", member, type=type, records=records)

    def commit(self, member: str, ms: int = 30_000) -> dict[str, str]:
        """Carry what was acknowledged; for each partition the name of the error, or nothing."""
        found: dict[str, str] = self._ask("commit", member, ms=ms)
        return found

    def leave(self, member: str) -> None:
        """Close a member."""
        self._ask("close", member)

    def end(self) -> None:
        """End the process, and its members with it, as if it crashed."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _ask(self, op: str, member: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, "member": member, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise MemberError(f"{op} {member}: the process has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise MemberError(f"{op} {member}: {answer['error']}: {answer['message']}")
        return answer["result"]
