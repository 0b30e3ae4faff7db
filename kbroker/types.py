"""Small values that every layer shares."""

from __future__ import annotations

import base64
import binascii
import random
from typing import NewType

from kbroker.value_types import NamedTuple, dataclass

Uuid = NewType("Uuid", bytes)
"""Kafka's Uuid: 16 bytes. Text form is URL-safe base64 without padding (22 characters)."""

ZERO_UUID = Uuid(bytes(16))
"""Stands for "no id" on the wire."""

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The fixed topic id of ``__cluster_metadata``."""

METADATA_TOPIC = "__cluster_metadata"


def uuid_to_str(value: Uuid) -> str:
    """Kafka's text form of a Uuid, as in ``meta.properties`` and the tools' output."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_str(text: str) -> Uuid:
    """Parse the text form; ``ValueError`` if it does not stand for exactly 16 bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a Kafka uuid") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka uuid: {len(raw)} bytes, not 16")
    return Uuid(raw)


def random_uuid(rng: random.Random) -> Uuid:
    """A new id; like Kafka's ``Uuid.randomUuid``, never reserved and never with a leading dash."""
    while True:
        value = Uuid(rng.randbytes(16))
        if value[:15] != bytes(15) and not uuid_to_str(value).startswith("-"):
            return value


class TopicPartition(NamedTuple):
    """A partition by topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    """A position in a log: the offset, and the leader epoch it belongs to."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes of an open file that go to a socket without entering Python (``os.sendfile``).

    ``fd`` belongs to the log, which keeps it open while a reader may hold the region
    (``owner`` keeps the file object alive).
    """

    fd: int
    position: int
    length: int
    owner: object = None

    def __len__(self) -> int:
        return self.length


Part = bytes | bytearray | memoryview | FileRegion
"""A piece of an encoded response, in the order in which it is written to the socket."""
