"""The files on disk: formatting, snapshots, quorum-state, batches; judged by Kafka's own tool if it is at hand."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import MetaProperties, read_meta_properties, write_meta_properties
from kbroker.log.disk import OsDisk
from kbroker.raft_metadata.image import EMPTY_IMAGE
from kbroker.raft_metadata.image.loader import ImageLoader
from kbroker.raft_metadata.raft.batches import decode_batches, encode_records, record_version
from kbroker.raft_metadata.raft.election_state import (
    ElectionState,
    QuorumStateFile,
    decode_election_state,
    encode_election_state,
)
from kbroker.raft_metadata.raft.promises import Promises, PromisesFile
from kbroker.raft_metadata.raft.snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot_file_name,
    read_bootstrap,
)
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.raft_metadata.storage import (
    activation_records,
    bootstrap_records,
    format_log_dirs,
    mend_meta_properties,
    metadata_version_level,
    standalone_voters,
)
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.errors import WireError
from kbroker.wire.records import metadata as rec
from tests.patience import LONG

DIRECTORY_ID = Uuid(bytes(range(16)))

ELR = "eligible.leader.replicas.version"
TV = "transaction.version"
SHARE = "share.version"
SV = "streams.version"


def format_dir(path: Path, **more: object) -> list[str]:
    return format_log_dirs(
        OsDisk(),
        [str(path)],
        str(path),
        node_id=1,
        cluster_id="AAAAAAAAAAAAAAAAAAAAAw",
        rng=random.Random(1),
        now_ms=1_700_000_000_000,
        standalone_listeners=[("CONTROLLER", "127.0.0.1", 9093)],
        **more,  # type: ignore[arg-type]
    )


def test_formatting_twice_is_refused_or_ignored(tmp_path: Path) -> None:
    assert format_dir(tmp_path) == [str(tmp_path)]
    with pytest.raises(FatalError, match="already formatted"):
        format_dir(tmp_path)
    assert format_dir(tmp_path, ignore_formatted=True) == []
    text = (tmp_path / "meta.properties").read_text()
    assert "version=1\n" in text and "cluster.id=AAAAAAAAAAAAAAAAAAAAAw\n" in text and "directory.id=" in text


def test_unknown_features_and_levels_are_refused() -> None:
    with pytest.raises(FatalError, match="unsupported feature"):
        bootstrap_records({"no.such.version": 1})
    with pytest.raises(FatalError, match="must be between 7 and 33"):
        bootstrap_records({"metadata.version": 34})
    with pytest.raises(FatalError, match=r"depends on metadata\.version level 23"):
        bootstrap_records({"metadata.version": 22, "eligible.leader.replicas.version": 1})
    assert metadata_version_level("4.3-IV0") == metadata_version_level("4.3") == 30
    assert metadata_version_level("4.4-IV2") == metadata_version_level("4.4") == 33
    with pytest.raises(FatalError):
        metadata_version_level("5.0")


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({}, [("metadata.version", 33), (ELR, 1), ("group.version", 1), (SHARE, 2), (SV, 1), (TV, 2)]),
        (
            {"metadata.version": 30},
            [("metadata.version", 30), (ELR, 1), ("group.version", 1), (SHARE, 1), (SV, 1), (TV, 2)],
        ),
        ({"metadata.version": 25}, [("metadata.version", 25), ("group.version", 1), (TV, 2)]),
        ({"metadata.version": 21}, [("metadata.version", 21)]),
        ({"group.version": 0}, [("metadata.version", 33), (ELR, 1), (SHARE, 2), (SV, 1), (TV, 2)]),
        ({"metadata.version": 21, "group.version": 1}, [("metadata.version", 21), ("group.version", 1)]),
    ],
)
def test_a_release_brings_its_features(levels: dict[str, int], expected: list[tuple[str, int]]) -> None:
    assert [(record.name, record.feature_level) for record in bootstrap_records(levels)] == expected


def test_a_clusters_first_records_are_one_change_with_what_its_features_need() -> None:
    min_isr = rec.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")
    assert activation_records(bootstrap_records(), 2) == [
        rec.BeginTransactionRecord(name="Bootstrap records"),
        *bootstrap_records(),
        min_isr,
        rec.EndTransactionRecord(),
    ]
    # metadata.version knows no transactions before 3.6-IV1, and a release before 4.1 no eligible leaders.
    old = bootstrap_records({"metadata.version": 12})
    assert activation_records(old, 2) == old
    first = bootstrap_records({"metadata.version": 13})
    assert activation_records(first, 2)[1:-1] == first


def test_a_cluster_begins_with_the_records_of_either_way_of_formatting(tmp_path: Path) -> None:
    """Of Apache Kafka before and from 4.4 on (KIP-1170), which leaves them beside the voters."""
    disk = OsDisk()
    assert read_bootstrap(disk, str(tmp_path)) is None
    format_dir(tmp_path, feature_levels={"metadata.version": 30})
    older = read_bootstrap(disk, str(tmp_path))
    assert older == bootstrap_records({"metadata.version": 30})
    first = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    voters = decode_snapshot(first.read_bytes()).voters
    newer = bootstrap_records()
    first.write_bytes(encode_snapshot(newer, now_ms=5, last_contained_log_timestamp=4, kraft_version=1, voters=voters))
    assert read_bootstrap(disk, str(tmp_path)) == newer
    (tmp_path / "bootstrap.checkpoint").unlink()
    assert read_bootstrap(disk, str(tmp_path)) == newer
    first.write_bytes(first.read_bytes()[:-9])
    with pytest.raises(CorruptSnapshot, match="is damaged"):
        read_bootstrap(disk, str(tmp_path))


def test_a_snapshot_survives_the_trip_and_damage_is_found() -> None:
    voters = standalone_voters(1, DIRECTORY_ID, [("CONTROLLER", "127.0.0.1", 9093)])
    records = [
        rec.TopicRecord(name=f"t{number}", topic_id=Uuid(bytes([number % 256, number // 256]) * 8))
        for number in range(2500)
    ]
    data = encode_snapshot(records, epoch=3, now_ms=5, last_contained_log_timestamp=4, kraft_version=1, voters=voters)
    content = decode_snapshot(data)
    assert content.records == records
    assert (content.kraft_version, content.voters, content.last_contained_log_timestamp) == (1, voters, 4)
    for cut in (0, 10, 61, len(data) // 2, len(data) - 75, len(data) - 1):
        with pytest.raises(WireError):
            decode_snapshot(data[:cut])
    for position in range(16, len(data), 4999):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(WireError):
            decode_snapshot(bytes(damaged))


def test_snapshot_names() -> None:
    assert parse_snapshot_file_name("00000000000000000012-0000000003.checkpoint") == OffsetAndEpoch(12, 3)
    assert parse_snapshot_file_name("00000000000000000012-0000000003.checkpoint.tmp") is None
    assert parse_snapshot_file_name("bootstrap.checkpoint") is None


def test_quorum_state_is_kafkas_json(tmp_path: Path) -> None:
    leader = ElectionState(1, 1)
    assert encode_election_state(leader, 1, [1]) == (
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    voted = ElectionState(7, -1, ReplicaKey(3, DIRECTORY_ID))
    for state in (leader, voted):
        assert decode_election_state(encode_election_state(state, 1, [1])) == state
    assert decode_election_state(
        encode_election_state(ElectionState(7, -1, ReplicaKey(3)), 0, [1, 3])
    ) == ElectionState(7, -1, ReplicaKey(3))
    file = QuorumStateFile(OsDisk(), str(tmp_path), Promises())
    assert file.read() is None
    file.write(voted, 1, [1, 3])
    assert QuorumStateFile(OsDisk(), str(tmp_path), Promises()).read() == voted


@pytest.mark.parametrize("damage", [None, b"", b"{}", b'{"data_version":9}', b"\xff", b"[]", b'{"leaderEpoch":-1}'])
def test_a_vote_is_kept_in_two_places(tmp_path: Path, damage: bytes | None) -> None:
    """Either file may be lost; and what Apache Kafka has written since counts."""
    identity = MetaProperties("c", 1, DIRECTORY_ID)
    voted, later = ElectionState(7, -1, ReplicaKey(3, DIRECTORY_ID)), ElectionState(7, 3, None)

    def opened() -> QuorumStateFile:
        return QuorumStateFile(OsDisk(), str(tmp_path), PromisesFile(OsDisk(), str(tmp_path), identity))

    opened().write(voted, 1, [1, 3])
    for path in (tmp_path / "quorum-state", tmp_path / "quorum-promises"):
        whole = path.read_bytes()
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        assert opened().read() == voted
        path.write_bytes(whole)
    for known in (later, ElectionState(8)):
        (tmp_path / "quorum-state").write_bytes(encode_election_state(known, 1, [1, 3]))
        assert opened().read() == known
    (tmp_path / "quorum-state").write_bytes(encode_election_state(ElectionState(7), 1, [1, 3]))
    assert opened().read() == voted, "a vote is not forgotten"


def test_meta_properties_are_made_anew_from_what_is_known(tmp_path: Path) -> None:
    """But not those of another directory, nor where the disk of a directory may not be mounted."""
    disk, one, two = OsDisk(), tmp_path / "one", tmp_path / "two"
    own, other = MetaProperties("c", 1, DIRECTORY_ID), MetaProperties("c", 1, Uuid(b"second directory"))
    for path, properties in ((one, own), (two, other)):
        (path / "t-0").mkdir(parents=True)
        write_meta_properties(disk, str(path), properties)
    promises = PromisesFile(disk, str(one), own)
    promises.note_directories({str(two): Uuid(b"second directory")})

    def mended() -> tuple[MetaProperties | None, MetaProperties | None]:
        mend_meta_properties(disk, str(one), [str(one), str(two)])
        return read_meta_properties(disk, str(one)), read_meta_properties(disk, str(two))

    for path in (one, two):
        file = path / "meta.properties"
        for damage in (b"", b"\0" * 90, file.read_bytes()[:30], file.read_bytes().replace(b"node.id=1", b"node.id=3")):
            file.write_bytes(damage)
            assert mended() == (own, other)
            assert (path / "meta.properties.set-aside").read_bytes() == damage
        file.unlink()
        assert mended() == (own, other)
    foreign = MetaProperties("another", 7, Uuid(b"another's id 16b"))
    write_meta_properties(disk, str(two), foreign)
    assert mended() == (own, foreign)
    (two / "meta.properties").unlink()
    (two / "t-0").rmdir()
    assert mended() == (own, None)


def test_promises_are_of_one_directory_and_survive_in_part(tmp_path: Path) -> None:
    def opened(directory_id: Uuid = DIRECTORY_ID) -> PromisesFile:
        return PromisesFile(OsDisk(), str(tmp_path), MetaProperties("c", 1, directory_id))

    promises, end = opened(), OffsetAndEpoch(50, 3)
    assert promises.is_missing
    promises.note_end(end)
    promises.lose("a reason")
    for lower in (OffsetAndEpoch(90, 2), OffsetAndEpoch(40, 3)):
        promises.note_end(lower)  # while something is lost
    promises.lower_end(OffsetAndEpoch(10, 1))
    assert (opened().end, opened().lost) == (end, "a reason")
    assert opened(Uuid(b"another directory"[:16])).is_missing
    path = tmp_path / "quorum-promises"
    whole = path.read_bytes()
    for position, known in ((20, (end, f"{path} is damaged")), (len(whole) - 500, (OffsetAndEpoch(0, 0), "a reason"))):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        assert (opened().end, opened().lost) == known
    path.write_bytes(whole)
    opened().regain(OffsetAndEpoch(50, 3))
    again = opened()
    assert again.lost is None
    again.lower_end(OffsetAndEpoch(40, 3))
    again.note_end(OffsetAndEpoch(45, 4))
    assert opened().end == OffsetAndEpoch(45, 4)
    assert opened().is_kept_by(OffsetAndEpoch(1, 5)) and not opened().is_kept_by(OffsetAndEpoch(99, 3))


def test_records_are_written_in_the_version_of_the_metadata_version() -> None:
    """The levels at which Kafka's ``MetadataVersion`` goes on to the next version of a record."""
    for record in (rec.PartitionRecord(), rec.PartitionChangeRecord()):
        assert [record_version(record, level) for level in (7, 16, 17, 22, 23, 30)] == [0, 0, 1, 1, 2, 2]
    broker = rec.RegisterBrokerRecord()
    assert [record_version(broker, level) for level in (7, 8, 16, 17, 29, 30)] == [1, 2, 2, 3, 3, 4]
    for level in (7, 30):
        assert record_version(rec.BrokerRegistrationChangeRecord(fenced=-1), level) == 0
        assert record_version(rec.BrokerRegistrationChangeRecord(in_controlled_shutdown=1), level) == 1


def batch(*records: object, base_offset: int = 0) -> bytes:
    return encode_records(records, base_offset=base_offset, epoch=1, timestamp_ms=1, metadata_version=30)


def test_a_transaction_shows_at_its_end_or_not_at_all() -> None:
    def load(*batches: bytes) -> ImageLoader:
        loader = ImageLoader(EMPTY_IMAGE)
        for data in batches:
            for decoded in decode_batches(data):
                loader.take(decoded)
                loader.publish(OffsetAndEpoch(decoded.last_offset, 1))
        return loader

    topic = rec.TopicRecord(name="t", topic_id=Uuid(b"t" * 16))
    begin, end, abort = rec.BeginTransactionRecord(), rec.EndTransactionRecord(), rec.AbortTransactionRecord()
    assert not load(batch(begin), batch(topic)).image.topics.by_name
    assert load(batch(begin), batch(topic), batch(end)).image.topics.by_name.keys() == {"t"}
    assert not load(batch(begin), batch(topic), batch(abort)).image.topics.by_name


@pytest.mark.kafka
def test_kafkas_dump_tool_reads_what_formatting_writes(tmp_path: Path) -> None:
    home = os.environ.get("KAFKA_HOME")
    if not home:
        pytest.skip("KAFKA_HOME is not set")
    format_dir(tmp_path)
    for name, words in (
        ("bootstrap.checkpoint", ["metadata.version", '"featureLevel":33', "SnapshotFooter"]),
        (
            "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
            ['"kRaftVersion":1', '"voterId":1', '"port":9093', "SnapshotFooter"],
        ),
    ):
        out = subprocess.run(
            [f"{home}/bin/kafka-dump-log.sh", "--cluster-metadata-decoder", "--files", str(tmp_path / name)],
            capture_output=True, text=True, timeout=2 * LONG, check=True,
        ).stdout  # fmt: skip
        assert "isvalid: false" not in out
        for word in words:
            assert word in out
