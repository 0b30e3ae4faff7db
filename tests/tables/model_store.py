"""Tables in a store behind a proxy: written through the proxy, and read from the store itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbroker.tables.delta import DeltaTarget
from kbroker.tables.follower import Settings
from kbroker.tables.stores import StoreOptions
from kbroker.tables.target import StoreAway, Target
from tests.patience import LONG
from tests.tables.model_topic import ModelTopic, follow, iceberg_rows

SECRET = "hush/Hush+hush"


def options(url: str, key: str = "some-key", timeout: int = LONG) -> dict[str, str]:
    """Options for the store at an address: two tries, each of which has so many seconds."""
    return {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "max_retries": "1",
        "timeout": f"{timeout}s",
        "backoff_config.init_backoff": "10ms",
        "s3.connect-timeout": str(timeout),
        "s3.request-timeout": str(timeout),
    }


@dataclass
class StoredDelta:
    """A table of Delta."""

    place: str
    through: str
    straight: str
    timeout: int = LONG

    def target(self) -> Target:
        return DeltaTarget(self.place, StoreOptions(options(self.through, timeout=self.timeout)))

    def rows(self, end: str = "") -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        told = StoreOptions(options(self.straight)).for_delta()
        if not DeltaTable.is_deltatable(self.place + end, told):
            return []
        rows: list[dict[str, Any]] = DeltaTable(self.place + end, storage_options=told).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


@dataclass
class StoredIceberg:
    """A table of Iceberg, whose catalog is a file, and whose data are in the store."""

    file: Path
    place: str
    through: str
    straight: str
    timeout: int = LONG

    def target(self) -> Target:
        from kbroker.tables.iceberg import IcebergTarget

        given = options(self.through, timeout=self.timeout) | {"warehouse": self.place}
        return IcebergTarget("lake.t", f"sqlite:{self.file}", StoreOptions(given))

    def rows(self, end: str = "") -> list[dict[str, Any]]:
        rows = iceberg_rows(f"t{end}", self.file, **StoreOptions(options(self.straight)).for_pyiceberg())
        return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def follow_through(
    topic: ModelTopic,
    place: StoredDelta | StoredIceberg,
    settings: Settings,
    at: Callable[[int], None] = lambda moment: None,
) -> None:
    """Follow to the end of the topic, again and again while the store is away."""
    end = time.monotonic() + LONG
    while True:
        try:
            follow(topic, place, settings, at)
            return
        except StoreAway:
            assert time.monotonic() < end
