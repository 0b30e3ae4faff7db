"""``kbroker acl`` and ``kbroker user``, which are for any Kafka cluster, as administrators of the broker under test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.patience import LONG


def run(config: Path, bootstrap: str, words: Sequence[str], stdin: str = "") -> str:
    """The output of a command; its last words if it fails."""
    line = [sys.executable, "-m", "kbroker", *words, "-b", bootstrap, "--command-config", str(config)]
    done = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    return done.stdout


def grants(
    config: Path, bootstrap: str, user: str, topic: str
) -> tuple[Callable[[], None], Callable[[], int], Callable[[], int]]:
    """Create one ACL, describe it, and delete it; the last two say how many they found."""
    what = ("--allow", f"User:{user}", "--operation", "write", "--topic", topic)

    def create() -> None:
        run(config, bootstrap, ("acl", "add", *what))

    def describe() -> int:
        told = run(config, bootstrap, ("acl", "list", "--topic", topic, "--principal", f"User:{user}", "--json"))
        return len(json.loads(told))

    def delete() -> int:
        return run(config, bootstrap, ("acl", "delete", *what, "--yes")).count("deleted: ")

    return create, describe, delete


def keys(
    config: Path, bootstrap: str, user: str, mechanism: str
) -> tuple[Callable[[str | None], None], Callable[[], list[str]]]:
    """Set the password or, with None, delete it; the mechanisms and iterations that are told."""

    def change(password: str | None) -> None:
        if password is None:
            run(config, bootstrap, ("user", "delete", user, "--mechanism", mechanism, "--yes"))
        else:
            words = ("user", "add", user, "--mechanism", mechanism, "--iterations", "4096")
            run(config, bootstrap, words, f"{password}\n")

    def describe() -> list[str]:
        told = json.loads(run(config, bootstrap, ("user", "list", user, "--json")))
        return [f"{each['mechanism']}={each['iterations']}" for each in told]

    return change, describe
