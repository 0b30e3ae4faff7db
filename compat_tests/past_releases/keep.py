"""The data of each release, and what a client could read of them.

    python -m compat_tests.past_releases.keep VERSION

writes ``VERSION.tar.xz`` and ``VERSION.json`` beside this file, by that release's own code, which is in the history of
the repository. What is not kept so, the tests have written anew. The node is killed, not stopped: its directory has
everything that a recovery meets.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from compat_tests.log_interchange.content import Reading, Site
from compat_tests.log_interchange.nodes import ROOT, Kbroker, Place

HERE = Path(__file__).parent
RELEASES = re.findall(r"^## \[(\d.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)


def code_of(release: str, directory: Path) -> Path | None:
    """Unpack the package of a release into a directory; None if it is not in the history, as in a shallow clone.

    The release is its tag, or the commit that gave it a heading in the changelog.
    """
    found = _git("rev-parse", "--quiet", "--verify", f"v{release}^{{commit}}").decode().split()
    found = found or _git("log", "--format=%H", f"-S## [{release}] - ", "--", "CHANGELOG.md").decode().split()
    archive = _git("archive", found[-1], "kbroker") if found else b""
    if not archive:
        return None
    _unpack(io.BytesIO(archive), directory)
    return directory


def _git(*words: str) -> bytes:
    """Returns what git prints; nothing if it cannot."""
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def _unpack(archive: io.BytesIO, directory: Path) -> None:
    with tarfile.open(fileobj=archive) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        files.extractall(directory)


def kept(release: str, place: Place) -> dict[str, Any] | None:
    """Unpack a release's directory; returns what could be read of it, or None if none is kept."""
    archive = HERE / f"{release}.tar.xz"
    if not archive.exists():
        return None
    _unpack(io.BytesIO(archive.read_bytes()), place.directory)
    expected: dict[str, Any] = json.loads(archive.with_name(f"{release}.json").read_text())
    return expected


def written(place: Place, code: Path) -> dict[str, Any]:
    """Have the code of a release write its directory; returns what could be read of it."""
    node = Kbroker(place, code=code)
    try:
        node.start()
        site = Site(place.bootstrap)
        site.create_topics()
        site.write(0)
        return digest(site.read())
    finally:
        node.kill()


def digest(reading: Reading) -> dict[str, Any]:
    """Sum up a reading in few lines: numbers as they are, records by their count and checksum."""
    return {
        "records": {
            f"{topic}-{partition}": [len(records), hashlib.sha256(repr(records).encode()).hexdigest()]
            for (topic, partition), records in reading.records.items()
        },
        "bounds": {f"{topic}-{partition}": list(bounds) for (topic, partition), bounds in reading.bounds.items()},
        "by_time": {f"{topic}-{part} {shift}": at for (topic, part, shift), at in reading.by_time.items()},
        "committed": {f"{topic}-{partition}": offset for (topic, partition), offset in reading.committed.items()},
    }


def main() -> None:
    """Keep what a release writes."""
    [release] = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="kbroker-keep-") as directory:
        code = code_of(release, Path(directory) / "code")
        if code is None:
            raise SystemExit(f"the history of this clone has no release {release}")
        place = Place(Path(directory))
        expected = written(place, code)
        with tarfile.open(HERE / f"{release}.tar.xz", "w:xz") as archive:
            archive.add(place.data, "data")
        (HERE / f"{release}.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
