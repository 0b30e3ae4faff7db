"""The only voter, whose metadata log is damaged: it does not start, says what is lost, and goes on as it is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.testing import running_broker
from tests.cli_command import kbroker
from tests.node.test_damaged_data_dirs import Damage, Started, damaged, empty, garbage, torn

LOG = "__cluster_metadata-0/00000000000000000000.log"
TOPICS = ["first", "second", "third"]
WHEN_KILLED = pytest.mark.parametrize("whole", ["killed"], indirect=True)
"""Of what is the same whether the node was stopped."""


@pytest.fixture(scope="module", params=["killed", pytest.param("stopped", marks=pytest.mark.everything)])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a node that has made topics and ended."""
    directory = tmp_path_factory.mktemp(request.param)
    with Started(directory) as node:
        address = node.address()
        for topic in TOPICS:
            assert kbroker("topic", "create", topic, "-b", address, cwd=directory).returncode == 0
        if request.param == "killed":
            node.kill()
    yield directory


def doubled(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data + data)


def followed_by_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x07" * 99)


def of_a_topic(path: Path) -> None:
    """A bit of the record that makes the second topic."""
    data = bytearray(path.read_bytes())
    data[data.index(b"second")] ^= 1
    path.write_bytes(data)


def topics(copy: Path) -> list[str]:
    with running_broker(data_dir=copy / "kbroker-data") as node:
        listed = kbroker("topic", "list", "-b", node.bootstrap_servers, "--json", cwd=copy)
        assert listed.returncode == 0, listed.stderr
    assert not [line for line in node.logs if line.exc_info]
    return [topic["name"] for topic in json.loads(listed.stdout)]


@pytest.mark.parametrize("damage", [of_a_topic, torn, empty])
def test_it_does_not_start_and_goes_on_as_it_is_told(whole: Path, tmp_path: Path, damage: Damage) -> None:
    copy = damaged(whole, tmp_path, {LOG: damage})
    for _ in range(2):  # also when it is started again
        with Started(copy) as node:
            assert node.address() == ""
            node.wait()
        assert node.code == FatalError.exit_code
        (line,) = [line for line in node.errors.splitlines() if not line[:4].isdigit()]
        assert line.startswith("kbroker: kbroker-data/__cluster_metadata-0 has lost part of the metadata log")
        assert "kbroker recover-metadata" in line and "offset" in line
        if damage is of_a_topic:
            assert "make the topics third" in line, "what comes after the damage can be read"
    shown = kbroker("recover-metadata", cwd=copy)
    assert shown.returncode == 1 and shown.stdout.startswith("Lost: ")
    for path in (copy / "kbroker-data" / "__cluster_metadata-0").glob("*.set-aside"):
        refused = kbroker("put-back", str(path), cwd=copy)
        assert refused.returncode == 1 and "recover-metadata" in refused.stderr
    by_copy = tmp_path / "by-copy"
    shutil.copytree(copy, by_copy)
    taken = kbroker("recover-metadata", "--from", str(whole / "kbroker-data"), "--json", cwd=by_copy)
    assert taken.returncode == 0, taken.stderr
    assert json.loads(taken.stdout)["goes_on"]
    assert topics(by_copy) == TOPICS
    accepted = kbroker("recover-metadata", "--accept-loss", cwd=copy)
    assert accepted.returncode == 0, accepted.stderr
    found = topics(copy)
    if damage is of_a_topic:
        assert found == ["first", "third"], "no more is lost than what was damaged"
        assert topics(copy) == found
    else:
        assert found == TOPICS[: len(found)]
        assert damage is torn or found == []


@WHEN_KILLED
@pytest.mark.parametrize("damage", [doubled, followed_by_garbage])
def test_what_is_too_much_is_taken_away(whole: Path, tmp_path: Path, damage: Damage) -> None:
    assert topics(damaged(whole, tmp_path, {LOG: damage})) == TOPICS


@WHEN_KILLED
def test_the_end_of_a_copy_is_promised(whole: Path, tmp_path: Path) -> None:
    """A copy that has more than this node ever had: what is lost of it later is missed."""
    newer = tmp_path / "newer"
    shutil.copytree(whole, newer)
    assert topics(newer) == TOPICS  # the node has written its own records at the end
    copy = damaged(whole, tmp_path, {LOG: empty})
    taken = kbroker("recover-metadata", "--from", str(newer / "kbroker-data"), "--json", cwd=copy)
    assert taken.returncode == 0, taken.stderr
    log = copy / "kbroker-data" / LOG
    assert log.stat().st_size > (whole / "kbroker-data" / LOG).stat().st_size
    log.write_bytes(log.read_bytes()[:-1])
    shown = kbroker("recover-metadata", cwd=copy)
    assert shown.returncode == 1 and shown.stdout.startswith("Lost: "), shown.stdout
    assert f"had ended at {json.loads(taken.stdout)['end_offset']}," in shown.stdout


@WHEN_KILLED
def test_a_copy_of_another_cluster_is_refused(whole: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with running_broker(data_dir=other / "kbroker-data"):
        pass
    copy = damaged(whole, tmp_path, {LOG: garbage})
    refused = kbroker("recover-metadata", "--from", str(other / "kbroker-data"), cwd=copy)
    assert refused.returncode == 1 and "belongs to cluster" in refused.stderr
    with running_broker(data_dir=other / "kbroker-data"):
        used = kbroker("recover-metadata", cwd=other)
        assert used.returncode == 1 and "stop its node first" in used.stderr
