"""kbroker format, info, random-uuid and put-back."""

import json
import random
from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import read_meta_properties
from kbroker.log.disk import OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.raft_metadata.raft.snapshot import read_bootstrap
from kbroker.tools.cli import main
from kbroker.tools.cli.storage import parse_initial_controllers
from kbroker.types import TopicPartition, random_uuid, uuid_from_str, uuid_to_str
from kbroker.wire.records.metadata import UserScramCredentialRecord
from tests.log.log_helpers import NOW, batch

CLUSTER = "2esCd6SOSHm2pOYY9gzXPQ"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_random_uuid(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "random-uuid")
    assert code == 0
    assert uuid_to_str(uuid_from_str(out.strip())) == out.strip()


def test_format_and_info(config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("format", "-t", CLUSTER, "-c", str(config_file), "--standalone")
    assert run(capsys, *arguments) == (0, f"Formatted {tmp_path}/a.\nFormatted {tmp_path}/b.\n", "")
    properties = [read_meta_properties(OsDisk(), str(tmp_path / name)) for name in "ab"]
    assert [(found.cluster_id, found.node_id) for found in properties if found] == [(CLUSTER, 1)] * 2
    assert properties[0] is not None and properties[1] is not None
    assert properties[0].directory_id != properties[1].directory_id
    code, out, _ = run(capsys, "info", "-c", str(config_file))
    assert code == 0
    assert f"cluster.id={CLUSTER}" in out and "Found open listener:\n  NO AUTHENTICATION on " in out

    code, _, err = run(capsys, *arguments)
    assert code == 1
    assert "is already formatted" in err and err.count("\n") == 1
    assert run(capsys, *arguments, "--ignore-formatted")[:2] == (
        0,
        "All of the log directories are already formatted.\n",
    )


def test_info_tells_what_is_wrong(config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    code, out, _ = run(capsys, "info", "-c", str(config_file))
    assert code == 1
    assert f"{tmp_path}/a is not formatted" in out
    assert f"{tmp_path}/b does not exist" in out
    (tmp_path / "a" / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id=2\n")
    code, out, _ = run(capsys, "info", "-c", str(config_file))
    assert "belongs to node 2" in out


@pytest.mark.parametrize(
    ("words", "ends_with", "said"),
    [
        ([], 2, "--standalone, --initial-controllers and --no-initial-controllers"),
        (["--standalone", "-t", ""], 2, "--cluster-id"),
        (["--standalone", "-f", "metadata.version"], 2, "NAME=LEVEL"),
        (["--standalone", "-f", "metadata.version=1"], 1, "metadata.version"),
        (["--standalone", "-f", "no.such=1"], 1, "no.such"),
        (["--standalone", "-f", "kraft.version=0"], 2, "kraft.version must be 1"),
        (["--standalone", "-r", "9.9"], 2, "--release-version: unknown metadata.version '9.9'"),
        (["--standalone", "-r", "4.3-IV0", "-f", "metadata.version=29"], 2, "--release-version"),
        (["-I", "1@localhost:9093"], 2, "--initial-controllers"),
    ],
)
def test_what_cannot_be_formatted(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], ends_with: int, said: str
) -> None:
    code, _, err = run(capsys, "format", "-t", CLUSTER, "-c", str(config_file), *words)
    assert code == ends_with
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "a" / "meta.properties").exists()


def test_a_quorum_of_several(config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    voters = f"1@a:9093:{CLUSTER},2@b:9093:6W3WCz92RZqEc6fU8LDEQg"
    code, _, err = run(capsys, "format", "-t", CLUSTER, "-c", str(config_file), "-I", voters)
    assert (code, err) == (0, "")
    found = read_meta_properties(OsDisk(), str(tmp_path / "a"))
    assert found is not None and found.directory_id == uuid_from_str(CLUSTER)


def test_initial_controllers_are_parsed() -> None:
    voters = parse_initial_controllers(f"3@[::1]:9093:{CLUSTER}", "CONTROLLER")
    assert voters.ids == [3]
    endpoint = voters.voters[3].endpoints["CONTROLLER"]
    assert (endpoint.host, endpoint.port) == ("::1", 9093)
    for bad in ("", "x@a:1:b", f"1@a:70000:{CLUSTER}", f"1@a:1:{CLUSTER},1@b:1:{CLUSTER}"):
        with pytest.raises(FatalError, match="initial-controllers"):
            parse_initial_controllers(bad, "CONTROLLER")


def test_wrong_usage_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["no-such-command"], ["format"], ["format", "-s", "-N", "-t", "x", "-c", "y"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
    capsys.readouterr()


def test_users_are_added(config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("format", "-t", CLUSTER, "-c", str(config_file), "--standalone")
    users = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=hunter2]", "-S", "SCRAM-SHA-512=[name=bob,password=x]")
    assert run(capsys, *arguments, *users)[0] == 0
    records = read_bootstrap(OsDisk(), f"{tmp_path}/a")
    assert records is not None
    found = [(entry.name, entry.mechanism) for entry in records if isinstance(entry, UserScramCredentialRecord)]
    assert found == [("alice", 1), ("bob", 2)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-S", "SCRAM-SHA-1=[name=a,password=hunter2]"], "the mechanism SCRAM-SHA-1 is not one of"),
        (["-S", "SCRAM-SHA-256=[password=hunter2]"], "--add-scram: name is missing"),
        (["-S", "SCRAM-SHA-256=[name=a,password=hunter2]", "-r", "3.4"], "SCRAM users need metadata.version 3.5-IV2"),
    ],
)
def test_users_that_cannot_be_added(
    config_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    code, _, err = run(capsys, "format", "-t", CLUSTER, "-c", str(config_file), "--standalone", *words)
    assert code != 0 and text in err and "hunter2" not in err


def test_what_was_set_aside_is_put_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node of other metadata takes a log for a stray; the right one has it again."""
    topic_id = random_uuid(random.Random(1))
    tp = TopicPartition("t", 0)

    def opened() -> LogManager:
        return LogManager.open([tmp_path / "data"], OsDisk(), now_ms=0)

    manager = opened()
    manager.create_log(tp, topic_id, LogConfig()).append_as_leader(batch([b"kept"]), 0, now_ms=NOW)
    assert manager.set_stray_aside(lambda tp, topic_id: False) == [tp]
    [stray] = (tmp_path / "data").glob("t-0.*-stray")
    assert main(["put-back", str(stray)]) == 1
    assert "is in use: stop its node first" in capsys.readouterr().err
    manager.close()
    (tmp_path / "data" / "t-0").mkdir()
    assert main(["put-back", str(stray)]) == 1
    assert "there is a t-0 already" in capsys.readouterr().err
    (tmp_path / "data" / "t-0").rmdir()
    assert main(["put-back", str(tmp_path / "data")]) == 1
    assert "does not end in -stray" in capsys.readouterr().err
    assert main(["put-back", str(stray), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"put_back": {str(stray): str(tmp_path / "data" / "t-0")}}
    manager = opened()
    log = manager.get_log(tp)
    assert log is not None
    assert (log.topic_id, log.log_end_offset) == (topic_id, 1)
    manager.close()
