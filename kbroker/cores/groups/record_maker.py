"""Makes the records of groups whose members send heartbeats."""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.wire.records.versioned import encode_coordinator_key, encode_versioned

_VERSION = 0
"""The only version of these values."""


def coordinator_record(key: object, value: object) -> CoordinatorRecord:
    """A record of ``__consumer_offsets`` from the classes of ``kbroker.wire.records``; None is a tombstone."""
    return CoordinatorRecord(encode_coordinator_key(key), None if value is None else encode_versioned(value, _VERSION))
