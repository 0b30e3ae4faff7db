"""This release opens the data of each past release, reads all of it, and appends to it; a cluster of 0.1.0 becomes one
of this release, and of 0.1.0 again, node by node under load."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests.cluster.history import History, check, check_commits, check_complete, check_reader
from compat_tests.cluster.load import Group, Writer, create_topic, read_all
from compat_tests.log_interchange.content import Site
from compat_tests.log_interchange.nodes import ROOT, Kbroker, Place
from compat_tests.mixed_cluster.nodes import KbrokerNode, bootstrap, remove
from compat_tests.mixed_cluster.view import await_in_sync
from compat_tests.past_releases.keep import RELEASES, code_of, digest, kept, written

PARTITIONS = 3


def code_or_skip(release: str, directory: Path) -> Path:
    """The package of a release."""
    code = code_of(release, directory)
    if code is None:
        pytest.skip(f"the history of this clone has no release {release}")
    return code


@pytest.mark.parametrize("release", RELEASES)
def test_its_data_directory_opens(release: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    expected = kept(release, place) or written(place, code_or_skip(release, tmp_path / "code"))
    node = Kbroker(place)
    try:
        node.start()
        site = Site(place.bootstrap)
        # Compaction goes on meanwhile, by the same rules: its topics hold their keys' last values, no more is promised.
        found = digest(site.read())
        for compacted in ("compacted-0", "compacted-zstd-0"):
            assert 0 < found["records"].pop(compacted)[0] <= expected["records"].pop(compacted)[0]
        assert found == expected
        site.write(1)
        node.stop()
        node.start()
        bounds = digest(Site(place.bootstrap).read())["bounds"]
        assert all(bounds[partition][1] > end for partition, (_, end) in expected["bounds"].items() if end)
        node.stop()
    finally:
        node.kill()


def test_a_cluster_is_upgraded_and_taken_back_node_by_node_under_load(tmp_path: Path) -> None:
    old = code_or_skip("0.1.0", tmp_path / "code")
    first = KbrokerNode(1, tmp_path / "1", code=old)
    nodes = [first, *(KbrokerNode(number, tmp_path / str(number), first, votes=True, code=old) for number in (2, 3))]
    voters = ",".join(f"{node.node_id}@127.0.0.1:{node.controller_port}" for node in nodes)
    servers = ",".join(map(bootstrap, nodes))
    history = History()
    try:
        for node in nodes:
            node.fix_voters(voters)
        with ThreadPoolExecutor(3) as together:  # each waits for a quorum
            list(together.map(KbrokerNode.start, nodes))
        create_topic(servers, "load", PARTITIONS, min_insync_replicas="2")
        group = Group(servers, "load")
        writer = Writer(servers, "load", PARTITIONS, history, per_second=200)
        try:
            for code in (ROOT, old):
                for node in nodes:
                    writer.await_every_partition()
                    node.stop()
                    node.code = code
                    node.start()
                    await_in_sync((nodes[0], nodes[2]), "load")
            writer.await_every_partition()
            writer.stop()
            final = read_all(servers, "load", PARTITIONS, ends=history.ends)
            group.await_up_to(history.ends)
        finally:
            group.stop()
        problems = check(history, final)
        problems += check_reader(group.name, group.seen, final)
        problems += check_complete(group.name, group.seen, final)
        problems += check_commits(group.name, group.commits, group.committed())
        assert not problems, "\n".join(problems)
        assert not history.failed, "clients notice nothing"
    finally:
        for node in nodes:
            remove(node)
