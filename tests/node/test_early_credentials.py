"""SCRAM credentials before there is an image: every login asks for them, so the log is read once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.node.controller.early_credentials import EarlyCredentials
from kbroker.runtime.env import RealEnv
from kbroker.wire.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord


class _Log:
    """Stands for the metadata log, and knows which of its records were read."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.start_offset = 0
        self.truncations = 0
        self.latest_snapshot_id: Any = None
        self.snapshot: list[Any] = []
        self.reads: list[tuple[int, int]] = []

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    def read(self, start: int, end: int) -> Iterator[Any]:
        self.reads.append((start, end))
        yield SimpleNamespace(is_control=True)
        yield SimpleNamespace(
            is_control=False, records=self.records[start - self.start_offset : end - self.start_offset]
        )

    def load_snapshot(self, snapshot_id: Any) -> Any:
        assert snapshot_id is self.latest_snapshot_id
        return SimpleNamespace(records=self.snapshot)


def user(name: str, mechanism: int = 1) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )


def test_each_record_is_read_once(tmp_path: Path) -> None:
    log: Any = _Log()
    early = EarlyCredentials(log, RealEnv().disk, str(tmp_path))
    assert not early.credentials()
    log.records = [user("alice"), user("bob")]
    for _ in range(3):
        assert set(early.credentials()) == {("alice", 1), ("bob", 1)}
    log.records += [RemoveUserScramCredentialRecord(name="bob", mechanism=1), user("carol", 2)]
    assert set(early.credentials()) == {("alice", 1), ("carol", 2)}
    assert log.reads == [(0, 2), (2, 4)]

    del log.records[2:]
    log.truncations += 1
    assert set(early.credentials()) == {("alice", 1), ("bob", 1)}, "what was cut is forgotten"
    log.snapshot, log.latest_snapshot_id = [user("dave")], SimpleNamespace(offset=10)
    log.records, log.start_offset = [user("eve")], 10
    assert set(early.credentials()) == {("dave", 1), ("eve", 1)}, "another snapshot has taken the log's place"
    assert log.reads[2:] == [(0, 2), (10, 11)]
