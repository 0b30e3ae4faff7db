"""This release opens the data of each past release, reads all of it, and appends to it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from compat_tests.log_interchange.content import Site
from compat_tests.log_interchange.nodes import Kbroker, Place
from compat_tests.past_releases.keep import HERE, digest

RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


@pytest.mark.parametrize("release", RELEASES)
def test_its_data_directory_opens(release: str, tmp_path: Path) -> None:
    with tarfile.open(HERE / f"{release}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(tmp_path)
    expected = json.loads((HERE / f"{release}.json").read_text())
    place = Place(tmp_path)
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


def test_there_is_one_at_least() -> None:
    assert RELEASES
