"""The database's side of foreachBatch: batches again, in part, and out of order."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")

from spark_examples.upserts import apply_batch, connect

DAY = ("UA", "2013-01-01", 3, 2, 30)
PLANE = ("N1", 1_000, "UA1", "EWR", "IAH")


def test_a_batch_again_changes_nothing(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "new" / "db")) as connection:
        assert apply_batch(connection, "job", 0, [DAY], [PLANE])
        before = list(connection.iterdump())
        assert not apply_batch(connection, "job", 0, [DAY], [("N2", 1, "UA2", "JFK", "LAX")])
        assert list(connection.iterdump()) == before
        # The next batch, and the same number of another job, are new.
        assert apply_batch(connection, "job", 1, [DAY], [])
        assert apply_batch(connection, "other", 0, [DAY], [])
        assert connection.execute("SELECT * FROM carrier_day").fetchall() == [("UA", "2013-01-01", 9, 6, 90)]


def test_a_plane_has_its_newest_flight_whatever_the_order(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "db")) as connection:
        newer = ("N1", 2_000, "UA9", "JFK", "LAX")
        tie = ("N1", 2_000, "UA95", "LGA", "ORD")
        for batch, plane in enumerate((newer, PLANE, tie, newer)):
            apply_batch(connection, "job", batch, [], [plane])
        assert connection.execute("SELECT * FROM plane").fetchall() == [tie]


def test_a_batch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "db")) as connection:
        with pytest.raises(sqlite3.IntegrityError):
            apply_batch(connection, "job", 0, [DAY], [("N1", 1_000, None, "EWR", "IAH")])  # type: ignore[list-item]
        for table in ("applied", "carrier_day", "plane"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        assert apply_batch(connection, "job", 0, [DAY], [PLANE])
