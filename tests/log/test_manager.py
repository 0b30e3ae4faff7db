from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.log.checkpoint_files import MetaProperties, read_meta_properties, read_offsets, write_meta_properties
from kbroker.log.dirs.start_up import MANY_LOGS, MOST_THREADS, OpeningProgress, OpeningStopped, takes_long
from kbroker.log.disk import OsDisk
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.log_dir import parse_log_dir_name
from kbroker.log.manager import LogManager
from kbroker.types import TopicPartition, Uuid, random_uuid
from tests.log.log_helpers import NOW, batch, delete_expired, finish, read_all
from tests.patience import LONG

RNG = random.Random(3)
ID = random_uuid(RNG)
A, B, C = (TopicPartition("a.b_c-d", 0), TopicPartition("b", 11), TopicPartition("c", 2))


def start(disk: FakeDisk, *dirs: str, **options: object) -> LogManager:
    return LogManager.open(dirs or ["/data"], disk, now_ms=NOW, rng=random.Random(1), **options)  # type: ignore[arg-type]


def fill(manager: LogManager, tp: TopicPartition, *values: bytes, config: LogConfig | None = None) -> None:
    log = manager.create_log(tp, ID, config or LogConfig())
    for value in values:
        log.append_as_leader(batch([value]), 0, now_ms=NOW)


def test_names_of_log_directories() -> None:
    assert parse_log_dir_name("a.b_c-d-0") == A
    for name in ("a", "a-", "-1", "a-x", "a-1.0123-delete", "lost+found", "a-1\n"):
        assert parse_log_dir_name(name) is None


def test_a_new_log_touches_no_disk_before_it_is_written() -> None:
    disk = FakeDisk()
    manager = start(disk)
    operations = disk.operations
    manager.create_log(A, ID, LogConfig())
    assert disk.operations == operations
    fill(manager, A, b"x")
    assert disk.read_bytes("/data/a.b_c-d-0/partition.metadata").startswith(b"version: 0\ntopic_id: ")


def test_logs_come_back_after_a_clean_stop() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"1", b"2", b"3")
    fill(manager, B, b"4")
    log = manager.get_log(A)
    assert log is not None
    log.maybe_increment_log_start_offset(1)
    manager.close(high_watermarks={A: 3, B: 1}, broker_epoch=77)
    assert disk.read_bytes("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":77}'
    assert disk.read_bytes("/data/log-start-offset-checkpoint") == b"0\n1\na.b_c-d 0 1\n"
    assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n2\na.b_c-d 0 3\nb 11 1\n"
    assert disk.read_bytes("/data/replication-offset-checkpoint") == b"0\n2\na.b_c-d 0 3\nb 11 1\n"
    manager = start(disk)
    assert manager.log_dirs[0].was_clean
    assert manager.log_dirs[0].broker_epoch == 77
    assert manager.high_watermarks == {A: 3, B: 1}
    assert not disk.exists("/data/.kafka_cleanshutdown")
    # A node that stops before it has partitions knows of no other.
    manager.close(high_watermarks={B: 0})
    manager = start(disk)
    assert manager.high_watermarks == {A: 3, B: 0}
    log = manager.get_log(A)
    assert log is not None
    assert log.topic_id == ID
    assert read_all(log) == [(1, b"2"), (2, b"3")]
    assert [log.topic_partition for log in manager] == [A, B]


def test_a_locked_directory_is_refused(tmp_path: Path) -> None:
    for disk, path in ((FakeDisk(), "/data"), (OsDisk(), str(tmp_path / "logs"))):
        manager = LogManager.open([path], disk, now_ms=NOW)
        with pytest.raises(FatalError, match="in use by another broker"):
            LogManager.open([path], disk, now_ms=NOW)
        manager.close()
        LogManager.open([path], disk, now_ms=NOW).close()


def test_two_processes_exclude_each_other(tmp_path: Path) -> None:
    import subprocess
    import sys

    manager = LogManager.open([tmp_path], OsDisk(), now_ms=NOW)
    script = (
        "import sys; from kbroker.log.manager import LogManager; from kbroker.log.disk import OsDisk\n"
        "from kbroker.errors import FatalError\n"
        "try: LogManager.open([sys.argv[1]], OsDisk(), now_ms=0)\n"
        "except FatalError: sys.exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 7
    manager.close()


def test_the_owner_of_a_directory_is_checked() -> None:
    disk = FakeDisk()
    disk.make_dirs("/data")
    write_meta_properties(disk, "/data", MetaProperties("abc=", 3, ID))
    with pytest.raises(FatalError, match=r"/data belongs to cluster abc=, not to other"):
        start(disk, cluster_id="other", node_id=3)
    with pytest.raises(FatalError, match="/data belongs to node 3, not to node 4"):
        start(disk, cluster_id="abc=", node_id=4)
    assert disk.list_dir("/data") == ["meta.properties"], "nothing is made there, no lock file either"
    manager = start(disk, cluster_id="abc=", node_id=3)
    assert manager.log_dirs[0].directory_id == ID
    manager.close()
    disk.write_bytes("/data/meta.properties", b"version=1\nnode.id=x\ncluster.id=abc=\n")
    with pytest.raises(FatalError, match=r"/data/meta.properties: invalid literal"):
        start(disk)


def test_an_added_directory_gets_properties_of_its_own() -> None:
    disk = FakeDisk()
    start(disk, "/one", "/two", cluster_id="abc", node_id=3).close()
    one, two = (read_meta_properties(disk, path) for path in ("/one", "/two"))
    assert one is not None
    assert two is not None
    assert (one.cluster_id, one.node_id) == (two.cluster_id, two.node_id) == ("abc", 3)
    assert one.directory_id != two.directory_id


def test_new_logs_go_to_the_directory_with_the_fewest() -> None:
    disk = FakeDisk()
    manager = start(disk, "/one", "/two")
    for partition in range(4):
        manager.create_log(TopicPartition("t", partition), ID, LogConfig())
    assert [len(manager.logs_in(log_dir)) for log_dir in manager.log_dirs] == [2, 2]
    manager.mark_offline(manager.log_dirs[0], OSError("gone"))
    for partition in range(4, 8):
        manager.create_log(TopicPartition("t", partition), ID, LogConfig())
    assert [len(manager.logs_in(log_dir)) for log_dir in manager.log_dirs] == [2, 6]
    manager.mark_offline(manager.log_dirs[1], OSError("gone"))
    with pytest.raises(ApiError) as caught:
        manager.create_log(TopicPartition("t", 9), ID, LogConfig())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_of_a_log_in_two_directories_the_longer_one_is_kept() -> None:
    disk = FakeDisk()
    for path, values in (("/one", [b"1"]), ("/two", [b"1", b"2"])):
        manager = start(disk, path)
        fill(manager, A, *values)
        manager.close()
    manager = start(disk, "/one", "/two")
    log = manager.get_log(A)
    assert log is not None
    assert log.directory == "/two/a.b_c-d-0"
    assert log.log_end_offset == 2
    assert [name.endswith("-stray") for name in disk.list_dir("/one") if name.startswith("a.")] == [True]


@pytest.mark.parametrize("present", [0, 1, 2, None])
def test_of_the_logs_of_several_topics_of_one_name_the_metadata_choose(present: int | None) -> None:
    disk = FakeDisk()
    paths, ids = ["/one", "/two", "/three"], [random_uuid(RNG) for _ in range(3)]
    for path, topic_id in zip(paths, ids, strict=True):
        manager = start(disk, path)
        manager.create_log(A, topic_id, LogConfig()).append_as_leader(batch([b"of " + path.encode()]), 0, now_ms=NOW)
        manager.checkpoint({A: 1})
        manager.release()
    manager = start(disk, *paths)
    manager.close()  # it may stop before it knows the metadata, and leaves all as it was
    manager = start(disk, *paths)
    assert all(log_dir.was_clean for log_dir in manager.log_dirs)
    chosen = None if present is None else ids[present]
    strays = manager.set_stray_aside(lambda tp, topic_id: topic_id == chosen)
    assert strays == [A] * (3 if present is None else 2)
    assert manager.high_watermarks == {}, "nobody can tell whose it was"
    log = manager.get_log(A)
    if present is None:
        assert log is None
    else:
        assert log is not None
        assert read_all(log) == [(0, b"of " + paths[present].encode())]
    for number, path in enumerate(paths):
        (name,) = (name for name in disk.list_dir(path) if name.startswith("a."))
        assert name.endswith("-stray") is (number != present)


def test_a_log_without_a_topic_id_is_of_the_topic_that_is_there() -> None:
    disk = FakeDisk()
    for path, topic_id, values in (
        ("/one", random_uuid(RNG), [b"old"]),
        ("/two", None, [b"1"]),
        ("/three", ID, [b"1", b"2"]),
    ):
        manager = start(disk, path)
        log = manager.create_log(A, topic_id, LogConfig())
        for value in values:
            log.append_as_leader(batch([value]), 0, now_ms=NOW)
        manager.close()
    manager = start(disk, "/one", "/two", "/three")
    manager.set_stray_aside(lambda tp, topic_id: topic_id in (None, ID))
    kept = manager.get_log(A)
    assert kept is not None
    assert kept.directory == "/three/a.b_c-d-0"
    [other] = [name for name in disk.list_dir("/one") if name.startswith("a.")]
    assert other.endswith("-stray")
    assert str(A) in disk.list_dir("/two"), "nothing says whose it is"


def test_a_log_that_may_be_in_an_offline_directory_is_not_made_anew() -> None:
    disk = FakeDisk()
    manager = start(disk, "/one", "/two")
    manager.mark_offline(manager.log_dirs[0], OSError("gone"))
    with pytest.raises(ApiError) as caught:
        manager.create_log(A, ID, LogConfig(), is_new=False)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.log_dir_of(A) is None
    manager.create_log(A, ID, LogConfig())
    assert manager.log_dir_of(A) is manager.log_dirs[1]


def test_directories_are_opened_side_by_side(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two", "three")]
    progress = OpeningProgress()

    def begin() -> LogManager:
        return LogManager.open(paths, OsDisk(), now_ms=NOW, rng=random.Random(1), progress=progress)

    manager = begin()
    for partition in range(30):
        fill(manager, TopicPartition("t", partition), b"%d" % partition)
    manager.release()
    manager = begin()
    assert [len(manager.logs_in(log_dir)) for log_dir in manager.log_dirs] == [10, 10, 10]
    assert progress.total == 30 and [each.logs_left for each in progress.dirs] == [0, 0, 0]
    for log in manager:
        assert read_all(log) == [(0, b"%d" % log.topic_partition.partition)]
    manager.close()


def test_dirs_that_are_locked_before_their_logs_are_opened_are_left_as_they_are() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"x")
    manager.close(broker_epoch=5)
    manager = LogManager.lock(["/data"], disk)
    assert manager.log_dirs[0].was_clean and manager.log_dirs[0].broker_epoch == 5 and not len(manager)
    with pytest.raises(FatalError, match="is in use by another broker"):
        LogManager.lock(["/data"], disk)
    manager.close(broker_epoch=6)
    manager = LogManager.lock(["/data"], disk)
    assert manager.log_dirs[0].was_clean and manager.log_dirs[0].broker_epoch == 5
    loaded = manager.load(now_ms=NOW, log_config=lambda tp: LogConfig())
    manager.close(broker_epoch=6)  # what was opened counts only once it is taken in
    manager = LogManager.lock(["/data"], disk)
    assert not manager.log_dirs[0].was_clean
    marks = manager.high_watermarks
    manager.take_in(manager.load(now_ms=NOW, log_config=lambda tp: LogConfig()))
    assert manager.high_watermarks is marks  # others have it by now
    assert [read_all(log) for log in manager] == [read_all(log) for log, _ in loaded.logs] == [[(0, b"x")]]
    manager.close()


def test_a_stop_is_heard_within_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, progress = FakeDisk(), OpeningProgress()
    manager = start(disk)
    values = [b"%d" % number * 900_000 for number in range(5)]
    fill(manager, A, *values)
    manager.release()
    pieces = 0

    def stop_at_the_third() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            progress.stop()
        check()

    check = progress.check
    monkeypatch.setattr(progress, "check", stop_at_the_third)
    with pytest.raises(OpeningStopped):
        start(disk, progress=progress)
    assert pieces == 3
    manager = start(disk)
    assert [read_all(log) for log in manager] == [list(enumerate(values))]


def test_log_dirs_are_opened_by_a_few_threads(tmp_path: Path) -> None:
    """Each is held while it opens its log until as many are there as may be."""
    dirs = [str(tmp_path / f"d{number}") for number in range(2 * MOST_THREADS)]
    manager = LogManager.open(dirs, OsDisk(), now_ms=NOW, rng=random.Random(1))
    for number in range(len(dirs)):
        fill(manager, TopicPartition("t", number), b"x")
    assert all(len(manager.logs_in(log_dir)) == 1 for log_dir in manager.log_dirs)
    manager.close()
    together = threading.Barrier(MOST_THREADS)
    lock, inside, most = threading.Lock(), 0, 0

    class Held(OsDisk):
        def list_dir(self, path: str) -> list[str]:
            nonlocal inside, most
            if os.path.basename(path).startswith("t-"):
                with lock:
                    inside += 1
                    most = max(most, inside)
                together.wait(2 * LONG)
                with lock:
                    inside -= 1
            return super().list_dir(path)

    manager = LogManager.open(dirs, Held(), now_ms=NOW, rng=random.Random(1))
    assert len(manager) == len(dirs)
    assert most == MOST_THREADS
    manager.close()


def test_a_stop_leaves_no_marker_if_not_all_logs_could_be_taken_in() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"x")
    fill(manager, B, b"y")
    manager.release()
    manager = LogManager.lock(["/data"], disk)
    loaded = manager.load(now_ms=NOW, log_config=lambda tp: LogConfig())
    loaded.logs.insert(1, (None, None))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        manager.take_in(loaded)
    manager.close(broker_epoch=5)
    manager = LogManager.lock(["/data"], disk)
    assert not manager.log_dirs[0].was_clean
    manager.take_in(manager.load(now_ms=NOW, log_config=lambda tp: LogConfig()))
    assert {log.topic_partition: read_all(log) for log in manager} == {A: [(0, b"x")], B: [(0, b"y")]}


def test_deleted_logs_are_renamed_then_removed() -> None:
    disk = FakeDisk()
    manager = start(disk)
    config = LogConfig(file_delete_delay_ms=1000)
    fill(manager, A, b"x", config=config)
    manager.delete_log(A)
    manager.delete_log(B)
    (name,) = (name for name in disk.list_dir("/data") if name.startswith("a."))
    assert name.startswith("a.b_c-d-0.")
    assert name.endswith("-delete")
    assert manager.get_log(A) is None
    manager.create_log(A, random_uuid(RNG), config)
    delete_expired(manager, NOW)
    delete_expired(manager, NOW + 999)
    assert disk.exists(f"/data/{name}")
    delete_expired(manager, NOW + 1000)
    assert not disk.exists(f"/data/{name}")
    fill_names = TopicPartition("n" * 249, 5)
    fill(manager, fill_names, b"x")
    manager.delete_log(fill_names)
    assert max(map(len, disk.list_dir("/data"))) == 255


def test_a_log_that_is_made_anew_is_not_judged_by_the_last_one_of_its_name() -> None:
    """After a crash it would end before its log start offset, and be dropped."""
    disk = FakeDisk()
    manager = start(disk)
    partitions = [TopicPartition("t", number) for number in range(3)]
    for tp in (*partitions, B):
        fill(manager, tp, b"1", b"2", b"3")
        log = manager.get_log(tp)
        assert log is not None
        log.maybe_increment_log_start_offset(2)
        log.flush()
    manager.checkpoint(dict.fromkeys((*partitions, B), 3))
    for tp in partitions:
        manager.delete_log(tp)
    manager.create_log(partitions[0], ID, LogConfig())
    operations = disk.operations
    for tp in partitions[1:]:
        manager.create_log(tp, ID, LogConfig())
    assert disk.operations == operations, "once for all"
    fill(manager, partitions[1], b"new")
    disk.kill()
    manager = start(disk)
    assert manager.high_watermarks == {B: 3}
    log, other = manager.get_log(partitions[1]), manager.get_log(B)
    assert log is not None
    assert other is not None
    assert read_all(log) == [(0, b"new")]
    assert (log.recovery_point, other.recovery_point) == (0, 2)
    assert read_all(other) == [(2, b"3")]


def test_a_flush_that_outlives_its_topic_leaves_the_next_one_of_the_name_alone() -> None:
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(C, ID, LogConfig())
    log.append_as_leader(batch([b"old"]), 0, now_ms=NOW)
    late = log.begin_flush()
    assert late is not None
    manager.delete_log(C)
    other = random_uuid(RNG)
    log = manager.create_log(C, other, LogConfig())
    log.append_as_leader(batch([b"new"]), 1, now_ms=NOW)
    log.flush()
    finish(late)
    manager.close()
    log = start(disk).create_log(C, other, LogConfig())
    assert (log.leader_epochs.entries, read_all(log), log.damage) == ([(1, 0)], [(0, b"new")], ())


def test_what_was_renamed_for_removal_goes_after_a_restart() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"x")
    manager.delete_log(A)
    manager.close()
    manager = start(disk)
    assert len(manager) == 0
    delete_expired(manager, NOW)
    assert not [name for name in disk.list_dir("/data") if name.endswith("-delete")]


@pytest.mark.parametrize(
    "name", ["damage.json", "damage.json.tmp", "leader-epoch-checkpoint", "00000000000000000000.log.set-aside"]
)
def test_a_log_of_which_a_power_cut_left_no_segment_is_opened(name: str) -> None:
    disk = FakeDisk()
    start(disk).close()
    disk.make_dirs(f"/data/{C}")
    disk.write_bytes(f"/data/{C}/{name}", b"")
    manager = start(disk)
    fill(manager, C, b"x")
    log = manager.get_log(C)
    assert log is not None
    assert read_all(log) == [(0, b"x")]
    assert log.is_damaged == (name == "damage.json"), "of what it said nobody knows anything"
    assert disk.exists(f"/data/{C}/{name}")


def test_strays_are_set_aside() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"x")
    fill(manager, B, b"x")
    fill(manager, C, b"x")
    manager.close()
    disk.write_bytes("/data/c-2/partition.metadata", b"nonsense")
    disk.remove("/data/c-2/topic-id")
    manager = start(disk)
    assert manager.set_stray_aside(lambda tp, topic_id: tp == A and topic_id == ID) == [B, C]
    [stray] = [found for found in disk.list_dir("/data") if found.startswith("b-11.")]
    assert stray.endswith("-stray")
    assert "c-2" in disk.list_dir("/data"), "nothing says whose it is"
    with pytest.raises(ApiError, match=r"c-2/partition\.metadata"):
        manager.create_log(C, ID, LogConfig())
    manager.close()
    manager = start(disk)
    assert all(log_dir.was_clean for log_dir in manager.log_dirs)
    assert [log.topic_partition for log in manager] == [A]


@pytest.mark.parametrize("mark", ["meta.properties", ".lock", "notes.txt"])
def test_what_is_no_log_is_left_where_it_is(mark: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also with a log's name, or that of one which is to be removed, and whatever is in it besides."""
    disk = FakeDisk()
    start(disk).close()
    marked = f"gone-0.{'a' * 32}-delete"
    places = [str(C), marked, f"old-1.{'b' * 32}-future"]
    for name in places:
        disk.make_dirs(f"/data/{name}/orders-0")
        disk.write_bytes(f"/data/{name}/{mark}", b"x")
    manager = start(disk)
    manager.set_stray_aside(lambda tp, topic_id: False)
    delete_expired(manager, NOW)
    if mark == "notes.txt":
        places.remove(marked)
    for name in places:
        assert disk.list_dir(f"/data/{name}") == sorted([mark, "orders-0"])
    told = [str(C)] if mark != "notes.txt" else places[::-1]  # the copy of a log that is not there may have records
    assert [record.message.partition(" is left where it is")[0] for record in caplog.records] == [
        f"/data/{name}" for name in told
    ]
    with pytest.raises(ApiError) as caught:
        manager.create_log(C, ID, LogConfig())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    manager.delete_log(C)
    assert disk.exists(f"/data/c-2/{mark}")


def test_a_log_is_not_made_where_something_has_its_name() -> None:
    disk = FakeDisk()
    manager = start(disk, "/one", "/two")
    fill(manager, A, b"x")
    log = manager.get_log(A)
    assert log is not None
    held = manager.log_dir_of(A)
    [other] = [log_dir for log_dir in manager.log_dirs if log_dir is not held]
    disk.make_dirs(f"{other.path}/{A}")
    disk.make_dirs(f"/one/{C}")
    disk.make_dirs(f"/two/{C}")
    with pytest.raises(ApiError, match="is in the way"):
        manager.moves.begin(log, other, now_ms=NOW)
    with pytest.raises(ApiError, match="is in the way"):
        manager.create_log(C, ID, LogConfig())
    assert [log_dir.offline for log_dir in manager.log_dirs] == [None, None]


def test_logs_that_were_made_under_other_metadata_are_not_touched() -> None:
    """Metadata that never had the directory, and know none of its topics, have not deleted them."""
    disk = FakeDisk()
    for path in ("/one", "/two"):
        manager = start(disk, path)
        fill(manager, A if path == "/one" else B, b"x")
        manager.close()
    names = disk.list_dir("/one")
    manager = start(disk, "/one", "/two")
    known = manager.log_dirs[1].directory_id = random_uuid(RNG)
    manager.refuse_other_histories([known], [])
    assert [log_dir.offline is not None for log_dir in manager.log_dirs] == [True, False]
    manager.set_stray_aside(lambda tp, topic_id: False)
    manager.close()
    assert disk.list_dir("/one") == [name for name in names if name != ".kafka_cleanshutdown"]
    assert [name for name in disk.list_dir("/two") if name.endswith("-stray")]
    manager = start(disk, "/one")
    manager.refuse_other_histories([], [ID])
    assert manager.log_dirs[0].offline is None, "a dir that comes from elsewhere, with a log that is known"
    with pytest.raises(FatalError, match="know none of their topics"):
        manager.refuse_other_histories([], [])


def test_another_topic_of_the_name_is_refused() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"x")
    with pytest.raises(ApiError) as caught:
        manager.create_log(A, Uuid(bytes(16)), LogConfig())
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_damaged_small_files_are_told_or_done_without() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"1", b"2")
    fill(manager, B, b"3")
    manager.close()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        disk.write_bytes(f"/data/{name}", b"0\n7\nbroken\n")
    disk.write_bytes("/data/b-11/partition.metadata", b"version: 0\ntopic_id: nonsense")
    disk.remove("/data/b-11/topic-id")
    manager = start(disk)
    log = manager.get_log(A)
    assert log is not None
    assert read_all(log) == [(0, b"1"), (1, b"2")]
    with pytest.raises(ApiError, match=r"/data/b-11/partition.metadata: 'nonsense' is not a Kafka uuid"):
        manager.get_log(B)
    manager.close()
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_directory_that_does_not_know_whose_it_is_is_offline_and_the_others_serve() -> None:
    disk = FakeDisk()
    for path in ("/one", "/two"):
        LogManager.open([path], disk, now_ms=NOW, cluster_id="c", node_id=1, rng=random.Random(1)).close()
    disk.write_bytes("/two/meta.properties", b"\0" * 90)
    manager = LogManager.open(["/one", "/two"], disk, now_ms=NOW, cluster_id="c", node_id=1, rng=random.Random(1))
    assert [log_dir.offline is None for log_dir in manager.log_dirs] == [True, False]
    assert "/two/meta.properties: version 0, expected 1; nothing else has" in str(manager.log_dirs[1].offline)
    fill(manager, A, b"served")
    assert disk.read_bytes("/two/meta.properties") == b"\0" * 90


def test_a_failing_directory_goes_offline_and_the_others_live_on() -> None:
    disk = FakeDisk()
    manager = start(disk, "/one", "/two")
    fill(manager, A, b"x")
    fill(manager, B, b"y")

    def fail(operation: str, path: str) -> None:
        if path.startswith("/one/") and operation == "sync":
            raise OSError(5, "Input/output error", path)

    disk.on_operation = fail
    manager.close()
    one, two = manager.log_dirs
    assert one.offline is not None
    assert "Input/output error" in one.offline
    assert two.offline is None
    assert not disk.exists("/one/.kafka_cleanshutdown")
    assert disk.exists("/two/.kafka_cleanshutdown")

    def gone(operation: str, path: str) -> None:
        if path.startswith("/one/"):
            raise OSError(5, "Input/output error", path)

    disk.on_operation = gone
    manager = start(disk, "/one", "/two")
    assert [log.topic_partition for log in manager] == [B]
    assert manager.log_dirs[0].offline is not None
    manager.close()
    with pytest.raises(FatalError, match=r"no log dir can be used: /one: .*Input/output error"):
        start(disk, "/one")


def test_checkpoints_are_written_only_when_they_change() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"x")
    manager.checkpoint({A: 1})
    operations = disk.operations
    manager.checkpoint({A: 1})
    assert disk.operations == operations
    for task in manager.flush_tasks(NOW):
        task.run()
        task.end()
    fill(manager, A, b"y")
    log = manager.get_log(A)
    assert log is not None
    log.flush()
    manager.checkpoint({A: 2})
    # One less than what is durable while the segment is written: its indexes are not flushed with it.
    assert read_offsets(disk, "/data/recovery-point-offset-checkpoint") == {A: 1}


def test_a_truncation_lowers_the_checkpoint_first() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"x", b"y", b"z")
    log = manager.get_log(A)
    assert log is not None
    log.flush()
    manager.checkpoint()
    log.truncate_to(1)
    assert read_offsets(disk, "/data/recovery-point-offset-checkpoint") == {A: 0}


def test_sealed_segments_are_flushed_on_the_next_round() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, *[b"v" * 100] * 20, config=LogConfig(segment_bytes=500))
    fill(manager, B, b"v")
    (task,) = manager.flush_tasks(NOW)
    task.run()
    task.end()
    log = manager.get_log(A)
    assert log is not None
    assert log.recovery_point == log.active_segment.base_offset
    assert manager.flush_tasks(NOW) == []


def test_retention_over_all_logs() -> None:
    disk = FakeDisk()
    manager = start(disk)
    config = LogConfig(segment_bytes=500, retention_ms=1000, file_delete_delay_ms=10)
    for tp in (A, B, C):
        fill(manager, tp, *[b"v" * 100] * 20, config=config)
    bounds = {A: 20, B: 4}
    assert manager.delete_old_segments(NOW + 1000, bounds.get) == 0
    assert manager.delete_old_segments(NOW + 1001, bounds.get) > 0
    starts = {log.topic_partition: log.log_start_offset for log in manager}
    assert starts[A] == 20
    assert 0 < starts[B] <= 4
    assert starts[C] == 0
    assert any(name.endswith(".deleted") for name in disk.list_dir("/data/a.b_c-d-0"))
    delete_expired(manager, NOW + 1011)
    assert not any(name.endswith(".deleted") for name in disk.list_dir("/data/a.b_c-d-0"))
    log = manager.get_log(A)
    assert log is not None
    assert log.append_as_leader(batch([b"x"]), 0, now_ms=NOW).first_offset == 20


@pytest.mark.parametrize("operation", ["rename", "remove"])
def test_a_dir_whose_retention_fails_goes_offline_and_that_of_the_others_goes_on(operation: str) -> None:
    disk = FakeDisk()
    manager = start(disk, "/one", "/two")
    config = LogConfig(segment_bytes=500, retention_ms=1000, file_delete_delay_ms=0)
    partitions = [TopicPartition("t", number) for number in range(4)]
    for tp in partitions:
        fill(manager, tp, *[b"v" * 100] * 20, config=config)

    def fail(what: str, path: str) -> None:
        if what == operation and path.startswith("/one/"):
            raise OSError(errno.EIO, "broken", path)

    disk.on_operation = fail
    assert manager.delete_old_segments(NOW + 1001) > 0
    delete_expired(manager, NOW + 1001)
    delete_expired(manager, NOW + 1001)
    assert [log_dir.offline is not None for log_dir in manager.log_dirs] == [True, False]
    for tp in partitions:
        log_dir, log = manager.log_dir_of(tp), manager.log_of(tp)
        assert log_dir is not None
        assert log is not None
        if log_dir.path == "/two":
            assert log.log_start_offset == 20
            assert not any(name.endswith(".deleted") for name in disk.list_dir(log.directory))


def test_a_thousand_logs_are_made_and_closed(tmp_path: Path) -> None:
    manager = LogManager.open([tmp_path], OsDisk(), now_ms=NOW)
    for partition in range(1000):
        manager.create_log(TopicPartition("many", partition), ID, LogConfig())
    manager.close()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("many")]


@pytest.mark.parametrize("offset", [0, 7, 1000])
def test_segments_that_are_cut_off_are_only_renamed_until_the_manager_removes_them(offset: int) -> None:
    """A replica that was away for long drops all it has: to remove that takes a disk seconds."""
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, *[b"v" * 100] * 20, config=LogConfig(segment_bytes=500))
    log = manager.get_log(A)
    assert log is not None
    removed: list[str] = []
    disk.on_operation = lambda operation, path: removed.append(path) if operation == "remove" else None
    if offset < 1000:
        log.truncate_to(offset)
    else:
        log.truncate_fully_and_start_at(offset)
    assert not [path for path in removed if path.endswith((".log", ".deleted"))]
    assert log.append_as_leader(batch([b"x"]), 0, now_ms=NOW).first_offset == log.log_end_offset - 1
    delete_expired(manager, NOW)
    assert [path for path in removed if path.endswith(".deleted")]
    assert not [name for name in disk.list_dir("/data/a.b_c-d-0") if name.endswith(".deleted")]
    assert read_all(log)[-1] == (log.log_end_offset - 1, b"x")
    manager.close()
    log = start(disk).get_log(A)
    assert log is not None
    assert read_all(log)[-1] == (log.log_end_offset - 1, b"x")


def test_a_log_that_could_not_be_opened_is_set_aside_when_its_topic_is_deleted() -> None:
    """Nothing proves that it is that topic's, and it must not be in the way of the next of its name."""
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, A, b"old")
    manager.close()
    disk.write_bytes("/data/a.b_c-d-0/partition.metadata", b"nonsense")
    disk.remove("/data/a.b_c-d-0/topic-id")
    manager = start(disk)
    manager.delete_log(A)
    assert manager.get_log(A) is None
    assert not disk.exists("/data/a.b_c-d-0")
    delete_expired(manager, NOW)
    assert [name.endswith("-stray") for name in disk.list_dir("/data") if name.startswith("a.b_c-d")] == [True]
    fill(manager, A, b"new")
    log = manager.get_log(A)
    assert log is not None
    assert read_all(log) == [(0, b"new")]


def test_a_log_that_is_deleted_while_its_files_are_removed_fails_no_log_dir() -> None:
    """They are removed in a thread: its directory may have another name from one moment to the next."""
    disk = FakeDisk()
    manager = start(disk)
    config = LogConfig(segment_bytes=500, retention_ms=1000, file_delete_delay_ms=0)
    fill(manager, A, *[b"v" * 100] * 20, config=config)
    assert manager.delete_old_segments(NOW + 1001) > 0
    task = manager.removal_task(NOW + 1001)
    assert task is not None
    size_of = disk.size

    def size(path: str) -> int:
        disk.size = size_of  # type: ignore[method-assign]
        manager.delete_log(A)
        fill(manager, A, b"of the next topic")
        return size_of(path)

    disk.size = size  # type: ignore[method-assign]
    while task.step():
        pass
    task.end()
    assert manager.log_dirs[0].offline is None
    assert disk.size == size_of, "it came to that"


@pytest.mark.parametrize("sequence", [-1, 0])
def test_logs_are_recovered_on_a_disk_that_has_no_room_at_all(sequence: int) -> None:
    disk = FakeDisk(capacity=4 << 20)
    manager = start(disk, cluster_id="abc=", node_id=1)
    names = [TopicPartition("t", index) for index in range(20)]
    for tp in names:
        log = manager.create_log(tp, ID, LogConfig(segment_bytes=200))
        for count in range(6):
            written = batch([b"x"], producer_id=5, sequence=count) if sequence >= 0 else batch([b"x"])
            log.append_as_leader(written, 0, now_ms=NOW)
    disk.kill()
    for name in disk.list_dir("/data"):
        if name.startswith(".reserve"):
            disk.remove(f"/data/{name}")
    disk.capacity = disk.used()
    manager = start(disk, cluster_id="abc=", node_id=1)
    assert manager.failed == {} and manager.log_dirs[0].room.is_full
    assert [len(read_all(log)) for log in manager] == [6] * 20
    disk.capacity = 8 << 20
    assert manager.log_dirs[0].room.fill_reserve()
    next(iter(manager)).append_as_leader(batch([b"y"]), 0, now_ms=NOW)
    manager.close()
    manager = start(disk, cluster_id="abc=", node_id=1)
    assert manager.log_dirs[0].was_clean and manager.failed == {}
    assert [len(read_all(log)) for log in manager] == [7] + [6] * 19


def test_logs_are_opened_at_once_where_they_are_few_and_sound_and_the_reserve_is_none() -> None:
    disk = FakeDisk()
    manager = start(disk, cluster_id="abc=", node_id=1)
    assert not takes_long(disk, ["/data", "/not_there_yet"]), "a new directory"
    for index in range(MANY_LOGS):
        fill(manager, TopicPartition("t", index), b"x")
    assert takes_long(disk, ["/data"]), "the last start has not ended"
    manager.close()
    assert not takes_long(disk, ["/data"])
    manager = start(disk, cluster_id="abc=", node_id=1)
    fill(manager, A, b"x")
    manager.close()
    assert takes_long(disk, ["/data"]), "one too many"


def test_a_log_is_deleted_where_the_disk_has_no_room_for_its_new_name() -> None:
    disk = FakeDisk()
    manager = start(disk, cluster_id="abc=", node_id=1)
    fill(manager, A, b"x")

    def full(operation: str, path: str) -> None:
        if operation == "rename" and disk.exists("/data/.reserve.3"):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.on_operation = full
    manager.delete_log(A)
    assert manager.log_dirs[0].room.is_full
    assert not disk.exists("/data/a.b_c-d-0") and any(name.endswith("-delete") for name in disk.list_dir("/data"))


def test_a_topic_may_be_called_as_the_reserve_is() -> None:
    disk = FakeDisk()
    manager = start(disk, cluster_id="abc=", node_id=1)
    named = TopicPartition(".reserve", 0)
    fill(manager, named, b"x")
    manager.close()
    assert [(log.topic_partition, len(read_all(log))) for log in start(disk, cluster_id="abc=", node_id=1)] == [
        (named, 1)
    ]


def test_indexes_that_are_built_anew_are_durable() -> None:
    named = TopicPartition("t", 0)
    config = LogConfig(segment_bytes=2000, index_interval_bytes=1)
    for seed in (288, 301, 386, 389):  # which leave whole entries of an index that is not flushed
        disk = FakeDisk(seed=seed)
        manager = start(disk)
        log = manager.create_log(named, None, config)
        for number in range(40):
            log.append_as_leader(batch([b"x" * 50], timestamp=NOW + number), 0, now_ms=NOW)
        latest = [segment.max_timestamp for segment in log.segments[:2]]
        manager.close()
        disk.remove("/data/t-0/00000000000000000000.timeindex")
        start(disk, log_config=lambda tp: config)
        disk.crash()
        log = next(iter(start(disk)))
        assert [segment.max_timestamp for segment in log.segments[:2]] == latest, seed


def test_two_power_cuts_leave_no_segment_but_the_note_of_what_is_missing() -> None:
    disk = FakeDisk()
    manager = start(disk, leaves_holes=False)
    manager.create_log(C, None, LogConfig()).append_as_leader(batch([b"1"]), 0, now_ms=NOW)
    manager.checkpoint({C: 1})
    disk.crash()
    start(disk, leaves_holes=False)
    disk.crash(lose_all=True)
    assert disk.list_dir("/data/c-2") == ["damage.json"]
    disk.crash(lose_all=True)
    log = start(disk, leaves_holes=False).create_log(C, None, LogConfig())
    assert (log.log_end_offset, [each[:2] for each in log.damage]) == (0, [(0, 1)])


def test_a_log_whose_records_were_all_deleted_has_the_same_epochs_after_each_stop() -> None:
    disk = FakeDisk()
    manager = start(disk)
    fill(manager, C, b"1")
    manager.create_log(C, ID, LogConfig()).maybe_increment_log_start_offset(1)
    for _ in range(3):
        manager.close()
        manager = start(disk)
        log = manager.create_log(C, ID, LogConfig())
        assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.entries) == (1, 1, [])


@pytest.mark.parametrize("is_killed", [False, True])
def test_records_that_were_deleted_do_not_come_back_when_the_power_fails(is_killed: bool) -> None:
    disk = FakeDisk()
    manager = start(disk)
    config = LogConfig(file_delete_delay_ms=0)
    fill(manager, C, b"1", b"2", config=config)
    log = manager.create_log(C, ID, config)
    log.roll(NOW)
    fill(manager, C, b"3", config=config)
    log.flush()
    log.maybe_increment_log_start_offset(2)
    manager.checkpoint()
    manager.delete_old_segments(NOW)  # the names of what is left say where the log starts, once they are durable
    if is_killed:
        disk.kill()
        manager = start(disk)
    manager.checkpoint()
    disk.crash(lose_all=True)
    again = start(disk).create_log(C, ID, config)
    assert (again.log_start_offset, read_all(again)) == (2, [(2, b"3")])


def test_indexes_that_a_start_has_made_anew_are_not_believed_before_they_are_durable() -> None:
    """A part of a time index would make the segment seem old, which retention deletes."""
    config = LogConfig(index_interval_bytes=0)
    for seed in range(40):
        disk = FakeDisk(seed=seed)
        manager = start(disk, log_config=lambda tp: config)
        log = manager.create_log(C, ID, config)
        for milliseconds in (0, 9, 1, 2):
            log.append_as_leader(batch([b"x"], timestamp=NOW + milliseconds), 0, now_ms=NOW)
        manager.close()
        start(disk, log_config=lambda tp: config)
        disk.kill()
        log = start(disk, log_config=lambda tp: config).create_log(C, ID, config)
        log.roll(NOW)
        log.append_as_leader(batch([b"x"]), 0, now_ms=NOW)
        disk.crash()
        again = start(disk, log_config=lambda tp: config).create_log(C, ID, config)
        assert again.segments[0].max_timestamp == NOW + 9, seed
