"""Formatting: the content of a log directory before a node's first start (``kbroker format``, Kafka's storage tool)."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import META_PROPERTIES, CorruptCheckpoint, MetaProperties, read_meta_properties
from kbroker.log.disk import Disk, write_atomically
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.log.log_dir import check_unclaimed, parse_log_dir_name
from kbroker.raft_metadata.config_schema import MIN_INSYNC_REPLICAS
from kbroker.raft_metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    default_feature_levels,
    unmet_dependency,
)
from kbroker.raft_metadata.image import ALL_BROKERS, config_record
from kbroker.raft_metadata.metadata_version import (
    LATEST_METADATA_VERSION,
    METADATA_TRANSACTIONS,
    METADATA_VERSION_NAMES,
    SCRAM,
)
from kbroker.raft_metadata.raft.promises import FILE_NAME as PROMISES_FILE
from kbroker.raft_metadata.raft.promises import promised_identities
from kbroker.raft_metadata.raft.snapshot import BOOTSTRAP_FILE, encode_snapshot, snapshot_file_name
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from kbroker.types import METADATA_TOPIC, OffsetAndEpoch, Uuid, random_uuid, uuid_to_str
from kbroker.wire.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    UserScramCredentialRecord,
)

logger = logging.getLogger(__name__)

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


def bootstrap_records(levels: Mapping[str, int] | None = None) -> list[FeatureLevelRecord]:
    """The records that a fresh cluster's log begins with: ``metadata.version`` first, level 0 left out.

    ``levels`` overrides the defaults, which are those of its ``metadata.version``. :class:`FatalError` for a feature
    or level that is not supported.
    """
    given = levels or {}
    chosen = {**default_feature_levels(given.get(METADATA_VERSION, LATEST_METADATA_VERSION)), **given}
    chosen.pop(KRAFT_VERSION, None)
    for name, level in chosen.items():
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None:
            known = ", ".join(sorted(SUPPORTED_FEATURES))
            raise FatalError(f"unsupported feature {name}: supported features are {known}")
        if not supported.min <= level <= supported.max:
            raise FatalError(f"{name} must be between {supported.min} and {supported.max}, not {level}")
        unmet = unmet_dependency(name, level, chosen)
        if unmet is not None:
            raise FatalError(unmet)
    names = [METADATA_VERSION, *sorted(name for name in chosen if name != METADATA_VERSION)]
    return [FeatureLevelRecord(name=name, feature_level=chosen[name]) for name in names if chosen[name]]


def activation_records(bootstrap: Sequence[object], min_insync_replicas: int) -> list[object]:
    """The first records of a cluster's log: those of ``bootstrap.checkpoint``, and those that its features need.

    ``min_insync_replicas``: that of the node's configuration, which becomes the default of all brokers when eligible
    leader replicas are on (Kafka's ``ActivationRecordsGenerator``).
    """
    levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
    records = list(bootstrap)
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0):
        records.append(config_record(ALL_BROKERS, MIN_INSYNC_REPLICAS, str(min_insync_replicas)))
    if levels.get(METADATA_VERSION, 0) >= METADATA_TRANSACTIONS:
        records = [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
    return records


def metadata_version_level(text: str) -> int:
    """The level of a release such as ``4.4-IV2``, ``4.4`` (its latest) or ``33``; :class:`FatalError` if unknown."""
    by_name = {name: level for level, name in METADATA_VERSION_NAMES.items()}
    if text in by_name:
        return by_name[text]
    candidates = [level for level, name in METADATA_VERSION_NAMES.items() if name.split("-")[0] == text]
    if candidates:
        return max(candidates)
    if text.isdecimal() and int(text) in METADATA_VERSION_NAMES:
        return int(text)
    raise FatalError(f"unknown metadata.version {text!r}")


def standalone_voters(node_id: int, directory_id: Uuid, listeners: Sequence[tuple[str, str, int]]) -> VoterSet:
    """The voter set of a quorum of one; ``listeners`` are the controller listeners (name, host, port)."""
    return VoterSet.of(
        [
            VoterNode(
                ReplicaKey(node_id, directory_id), {name: VoterEndpoint(host, port) for name, host, port in listeners}
            )
        ]
    )


def meta_properties(node_id: int, cluster_id: str, directory_id: Uuid | None) -> bytes:
    """The content of ``meta.properties`` (version 1)."""
    directory = "" if directory_id is None else f"directory.id={uuid_to_str(directory_id)}\n"
    return f"#\nnode.id={node_id}\n{directory}version=1\ncluster.id={cluster_id}\n".encode("ascii")


def mend_meta_properties(disk: Disk, metadata_log_dir: str, log_dirs: Sequence[str]) -> None:
    """Make ``meta.properties`` anew where it is damaged, from what the metadata log's directory knows (``Promises``).

    A file with more than one other value than is known there is that of another directory, and stays. So does one whose
    id another directory has, and the lack of one where there are no logs: the disk may not be mounted.
    """
    try:
        known = promised_identities(disk, metadata_log_dir)
    except OSError:
        return  # whoever opens the directory says so
    found: dict[str, MetaProperties | str | None] = {}
    for path in dict.fromkeys(map(os.path.abspath, (metadata_log_dir, *log_dirs))):
        try:
            found[path] = read_meta_properties(disk, path)
        except CorruptCheckpoint as error:
            found[path] = str(error)
        except OSError:
            continue  # whoever opens it says so
    ids = Counter(each.directory_id for each in found.values() if isinstance(each, MetaProperties))
    for path, each in found.items():
        wanted = known.get(path)
        if wanted is None or each == wanted:
            continue
        file = os.path.join(path, META_PROPERTIES)
        if isinstance(each, MetaProperties):
            if sum(one != other for one, other in zip(each, wanted, strict=True)) > 1:
                continue
            each = f"{file}: it is not as it was"
        elif ids[wanted.directory_id] or (each is None and not _has_logs(disk, path)):
            continue
        logger.warning("%s; it is made anew", each or f"{file}: it is missing")
        try:
            if disk.exists(file):
                disk.rename(file, file + SET_ASIDE_SUFFIX)
            write_atomically(disk, file, meta_properties(wanted.node_id, wanted.cluster_id, wanted.directory_id))
        except OSError as error:
            raise FatalError(f"cannot write {file}: {error.strerror or error}") from error


def _has_logs(disk: Disk, path: str) -> bool:
    try:
        return disk.is_dir(path) and any(parse_log_dir_name(name) for name in disk.list_dir(path))
    except OSError:
        return False  # whoever opens the directory says so


def format_log_dirs(
    disk: Disk,
    log_dirs: Sequence[str],
    metadata_log_dir: str,
    *,
    node_id: int,
    cluster_id: str,
    rng: random.Random,
    now_ms: int,
    feature_levels: Mapping[str, int] | None = None,
    standalone_listeners: Sequence[tuple[str, str, int]] | None = None,
    initial_controllers: VoterSet | None = None,
    scram_records: Sequence[UserScramCredentialRecord] = (),
    ignore_formatted: bool = False,
) -> list[str]:
    """Format the directories that are not formatted yet; their paths.

    ``standalone_listeners`` (name, host, port) makes this node the only voter of a dynamic quorum;
    ``initial_controllers`` names all of them, this node among them if it is a controller; with neither, the quorum
    is that of ``controller.quorum.voters`` or to be joined. ``scram_records`` are users that the cluster begins with
    (KIP-900). ``meta.properties`` is written last: it marks the directory as complete. :class:`FatalError` if a
    directory is formatted already (unless ``ignore_formatted``, and it is this node's), has those of others in it, or
    cannot be written.
    """
    directories = list(dict.fromkeys([metadata_log_dir, *log_dirs]))
    features = bootstrap_records(feature_levels)
    if scram_records and features[0].feature_level < SCRAM:
        raise FatalError(f"SCRAM users need metadata.version {METADATA_VERSION_NAMES[SCRAM]} or later")
    records = [*features, *scram_records]
    formatted: list[str] = []
    for directory in directories:
        found = _formatted_as(disk, directory)
        if found is not None:
            if not ignore_formatted:
                raise FatalError(
                    f"Log directory {directory} is already formatted. Use --ignore-formatted to ignore this directory "
                    "and format the others."
                )
            if (found.cluster_id, found.node_id) != (cluster_id, node_id):
                raise FatalError(
                    f"{directory} belongs to node {found.node_id} of cluster {found.cluster_id}, not to node {node_id}"
                    f" of {cluster_id}"
                )
            continue
        check_unclaimed(disk, directory, directories)
        marker = os.path.join(directory, META_PROPERTIES)
        directory_id = random_uuid(rng)
        try:
            disk.make_dirs(directory)
            promises = os.path.join(directory, PROMISES_FILE)
            if disk.exists(promises):  # of the directory that this one was
                disk.rename(promises, promises + SET_ASIDE_SUFFIX)
            write_atomically(
                disk,
                os.path.join(directory, BOOTSTRAP_FILE),
                encode_snapshot(records, now_ms=now_ms, last_contained_log_timestamp=0),
            )
            if directory == metadata_log_dir:
                voters = initial_controllers
                if standalone_listeners is not None:
                    voters = standalone_voters(node_id, directory_id, standalone_listeners)
                elif voters is not None and node_id in voters.voters:
                    directory_id = voters.voters[node_id].key.directory_id
                if voters is not None:
                    _write_voters(disk, os.path.join(directory, METADATA_DIRECTORY), voters, now_ms)
            write_atomically(disk, marker, meta_properties(node_id, cluster_id, directory_id))
        except OSError as error:
            raise FatalError(f"cannot format {directory}: {error.strerror or error}") from error
        formatted.append(directory)
    return formatted


def _formatted_as(disk: Disk, directory: str) -> MetaProperties | None:
    try:
        return read_meta_properties(disk, directory)
    except CorruptCheckpoint as error:
        raise FatalError(str(error)) from error
    except OSError as error:
        raise FatalError(f"cannot format {directory}: {error.strerror or error}") from error


def _write_voters(disk: Disk, metadata_dir: str, voters: VoterSet, now_ms: int) -> None:
    """Begin the metadata log with a snapshot that has the voters alone."""
    snapshot = encode_snapshot((), now_ms=now_ms, last_contained_log_timestamp=now_ms, kraft_version=1, voters=voters)
    disk.make_dirs(metadata_dir)
    write_atomically(disk, os.path.join(metadata_dir, snapshot_file_name(OffsetAndEpoch(0, 0))), snapshot)
