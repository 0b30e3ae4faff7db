"""Members of share groups in a process that is asked by lines: by Kafka's client, librdkafka's, or franz-go's.

A line is a JSON command, ``{"op": "poll", "member": "one", "ms": 500}``, and so is its answer, ``{"result": ...}`` or
``{"error": NAME, "message": TEXT}``. A member acknowledges explicitly.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compat_tests.apache_kafka import cache_dir, locked
from compat_tests.java.client import program

_HERE = Path(__file__).parent


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
    """A process of a client with members of share groups; each call names a member."""

    can_renew = True
    polls_between_renewals = True
    """Whether a member has to poll before it renews again. A member of franz-go must not: the next poll accepts."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    @staticmethod
    def command() -> list[str]:
        """The command line of the process."""
        raise NotImplementedError

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

    def commit(self, member: str, ms: int = 120_000) -> dict[str, str]:
        """Carry what was acknowledged; for each partition the name of the error, or nothing."""
        found: dict[str, str] = self._ask("commit", member, ms=ms)
        return {partition: _error_name(error) for partition, error in found.items()}

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


def _error_name(error: str) -> str:
    """``INVALID_RECORD_STATE``, also where a client says ``InvalidRecordStateException``."""
    name = error.removesuffix("Exception")
    return name if name == error else re.sub(r"(?<=.)(?=[A-Z])", "_", name).upper()


class JavaMembers(ShareMembers):
    """Kafka's own share consumer (ShareMembers.java)."""

    @staticmethod
    def command() -> list[str]:
        if any(shutil.which(each) is None for each in ("java", "javac", "mvn")):
            pytest.skip("needs a JDK and Maven")
        return program(_HERE / "ShareMembers.java")


class ConfluentMembers(ShareMembers):
    """librdkafka's share consumer, a preview: it renews nothing, and its limit of records is a soft one."""

    can_renew = False

    @staticmethod
    def command() -> list[str]:
        return [sys.executable, str(_HERE / "confluent_members.py")]


class FranzGoMembers(ShareMembers):
    """franz-go's share consumer (franz_go/main.go)."""

    polls_between_renewals = False

    @staticmethod
    def command() -> list[str]:
        return [str(_built(_HERE / "franz_go"))]


CLIENTS: dict[str, type[ShareMembers]] = {
    "java": JavaMembers,
    "confluent-kafka": ConfluentMembers,
    "franz-go": FranzGoMembers,
}


@functools.cache
def _built(source: Path) -> Path:
    """The program of a Go module, built if it changed; the test is skipped where there is no Go (1.21 or later)."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go")
    version = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"go1\.(\d+)", version)
    if found is None or int(found[1]) < 21:
        pytest.skip(f"needs Go 1.21, which fetches what a module asks for; this is {version.strip()}")
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sorted(source.iterdir()))).hexdigest()[:12]
    target = cache_dir() / "go" / f"{source.name}-{digest}"
    with locked("go"):
        if not target.exists():
            partial = target.with_suffix(".partial")
            built = subprocess.run(
                [go, "build", "-buildvcs=false", "-o", str(partial), "."], cwd=source, capture_output=True, text=True
            )
            assert built.returncode == 0, built.stderr
            partial.rename(target)
    return target
