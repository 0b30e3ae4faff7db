"""The small files beside the logs: offset checkpoints, ``partition.metadata``, ``meta.properties``.

All in Apache Kafka's formats, and replaced atomically. A file that cannot be right raises
:class:`CorruptCheckpoint`, whose text names the file and the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar
from zlib import crc32

from kbroker.errors import FatalError
from kbroker.log.disk import Disk, write_atomically
from kbroker.types import TopicPartition, Uuid, uuid_from_str, uuid_to_str
from kbroker.value_types import NamedTuple

T = TypeVar("T")

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
"""All of a log dir's files that hold an offset for each partition."""
PARTITION_METADATA = "partition.metadata"
TOPIC_ID_COPY = "topic-id"
"""A second place of the id in ``partition.metadata``, with a checksum. Apache Kafka ignores it."""
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_OTHER_COPY = (
    "nothing else has what it said: put it back from a backup, or write node.id, cluster.id and directory.id"
)


class CorruptCheckpoint(Exception):
    """A file cannot be right. The text names the file and the reason."""


def write_checkpoint(disk: Disk, path: str, lines: Iterable[str], *, sync: bool = True) -> None:
    """Write Kafka's checkpoint format: version 0, the number of entries, and a line for each."""
    entries = list(lines)
    text = "\n".join(["0", str(len(entries)), *entries, ""])
    write_atomically(disk, path, text.encode(), sync=sync)


def read_checkpoint(disk: Disk, path: str, parse: Callable[[list[str]], T]) -> list[T] | None:
    """The entries of a checkpoint file, each parsed from its words. ``None`` if the file is absent or empty: that does
    not say that there are none (Kafka creates the file before it has anything to say, and it may have been lost)."""
    try:
        text = disk.read_bytes(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise CorruptCheckpoint(f"{path}: not text") from None
    if text.strip() in ("", "0"):
        return None
    lines = text.splitlines()
    if len(lines) < 2:
        raise CorruptCheckpoint(f"{path}: it ends before the number of entries")
    if lines[0] != "0":
        raise CorruptCheckpoint(f"{path}: version {lines[0]!r}, expected 0")
    if not lines[1].isascii() or not lines[1].isdecimal():
        raise CorruptCheckpoint(f"{path}: malformed number of entries {lines[1]!r}")
    if len(lines) - 2 != int(lines[1]):
        raise CorruptCheckpoint(f"{path}: {lines[1]} entries announced, {len(lines) - 2} found")
    if not text.endswith("\n"):
        raise CorruptCheckpoint(f"{path}: its last line is cut off")
    entries = []
    for line in lines[2:]:
        try:
            entries.append(parse(line.split()))
        except (ValueError, IndexError):
            raise CorruptCheckpoint(f"{path}: malformed line {line!r}") from None
    return entries


def _offset_entry(words: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = words
    return TopicPartition(topic, int(partition)), int(offset)


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a file of offsets by partition, such as ``recovery-point-offset-checkpoint``."""
    write_checkpoint(disk, path, (f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets)))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int] | None:
    """Read what :func:`write_offsets`, or Apache Kafka, wrote; ``None`` if that is not there."""
    entries = read_checkpoint(disk, path, _offset_entry)
    return None if entries is None else dict(entries)


def write_partition_metadata(disk: Disk, directory: str, topic_id: Uuid, *, sync: bool = False) -> None:
    """Write the id of the topic whose data a directory holds, in both places."""
    text = uuid_to_str(topic_id)
    for name, content in (
        (TOPIC_ID_COPY, f"{text} {crc32(text.encode()):08x}\n"),
        (PARTITION_METADATA, f"version: 0\ntopic_id: {text}"),
    ):
        path = os.path.join(directory, name)
        if sync:
            write_atomically(disk, path, content.encode())
        else:
            disk.write_bytes(path, content.encode())


def read_topic_id_copy(disk: Disk, directory: str) -> Uuid | None:
    """The topic id in its second place; ``None`` if it is not there, or damaged."""
    try:
        text, checksum = disk.read_bytes(os.path.join(directory, TOPIC_ID_COPY)).decode("ascii").split()
        return uuid_from_str(text) if checksum == f"{crc32(text.encode()):08x}" else None
    except (OSError, ValueError):
        return None


def read_partition_metadata(disk: Disk, directory: str) -> Uuid | None:
    """The topic id of a partition's directory, or ``None`` if it was never written."""
    path = os.path.join(directory, PARTITION_METADATA)
    try:
        return _topic_id_in(disk.read_bytes(path))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise CorruptCheckpoint(f"{path}: not text") from None
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from None


@lru_cache(256)  # of a topic all partitions have the same
def _topic_id_in(content: bytes) -> Uuid:
    values: dict[str, str] = {}
    for line in content.decode().splitlines():
        name, colon, value = line.partition(":")
        if colon:
            values[name.strip()] = value.strip()
    if values.get("version") != "0":
        raise ValueError(f"version {values.get('version')!r}, expected 0")
    if "topic_id" not in values:
        raise ValueError("no topic_id")
    return uuid_from_str(values["topic_id"])


class MetaProperties(NamedTuple):
    """``meta.properties`` of a log dir, version 1: which cluster and node it belongs to."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None


def write_meta_properties(disk: Disk, log_dir: str, properties: MetaProperties) -> None:
    """Write ``meta.properties``; durable on return."""
    lines = ["#", f"node.id={properties.node_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_str(properties.directory_id)}")
    lines += ["version=1", f"cluster.id={properties.cluster_id}", ""]
    write_atomically(disk, os.path.join(log_dir, META_PROPERTIES), "\n".join(lines).encode())


def read_meta_properties(disk: Disk, log_dir: str) -> MetaProperties | None:
    """Read ``meta.properties``; ``None`` if the directory has none (it is not formatted)."""
    path = os.path.join(log_dir, META_PROPERTIES)
    try:
        text = disk.read_bytes(path).decode("latin-1")
    except FileNotFoundError:
        return None
    values: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, _, value = stripped.partition("=")
            # java.util.Properties escapes these two in values, and a cluster id may end in "=".
            values[name.strip()] = value.strip().replace("\\=", "=").replace("\\:", ":")
    if values.get("version") != "1":
        raise CorruptCheckpoint(f"{path}: version {values.get('version', '0')}, expected 1")
    try:
        node_id = int(values["node.id"])
        cluster_id = values["cluster.id"]
        directory_id = uuid_from_str(values["directory.id"]) if "directory.id" in values else None
    except KeyError as error:
        raise CorruptCheckpoint(f"{path}: {error.args[0]} is missing") from None
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from None
    return MetaProperties(cluster_id, node_id, directory_id)


def node_meta_properties(disk: Disk, metadata_log_dir: str, log_dirs: Sequence[str]) -> MetaProperties:
    """The first ``meta.properties`` of a node's directories that can be read; ``FatalError`` if there is none."""
    damaged = None
    for directory in (metadata_log_dir, *log_dirs):
        try:
            properties = read_meta_properties(disk, directory)
        except OSError as error:
            raise FatalError(f"cannot read meta.properties in {directory}: {error.strerror or error}") from error
        except CorruptCheckpoint as error:
            damaged = damaged or error
            continue
        if properties is not None:
            return properties
    if damaged is not None:
        raise FatalError(f"{damaged}; {NO_OTHER_COPY}") from damaged
    raise FatalError(f"no meta.properties in {', '.join(log_dirs)}: format the node first (kbroker format)")


def write_clean_shutdown(disk: Disk, log_dir: str, *, broker_epoch: int = -1) -> None:
    """Leave the marker by which the next start trusts the files as they are."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_bytes(os.path.join(log_dir, CLEAN_SHUTDOWN), text.encode(), sync=True)
    disk.sync_dir(log_dir)


def read_clean_shutdown(disk: Disk, log_dir: str) -> int | None:
    """The broker epoch in the marker (-1 if it holds none), or ``None`` without a marker."""
    try:
        content = json.loads(disk.read_bytes(os.path.join(log_dir, CLEAN_SHUTDOWN)))
        return int(content["brokerEpoch"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return -1  # older markers are empty: the stop was clean all the same


def remove_clean_shutdown(disk: Disk, log_dir: str) -> None:
    """Remove the marker, durably: from here on the files are being changed."""
    disk.remove(os.path.join(log_dir, CLEAN_SHUTDOWN))
    disk.sync_dir(log_dir)
