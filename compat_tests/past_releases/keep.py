"""A data directory of each release, and what a client could read of it: made once, at the release, and kept.

    python -m compat_tests.past_releases.keep

writes ``<version>.tar.xz`` and ``<version>.json`` beside this file. The node is killed, not stopped: its directory
has everything that a recovery meets.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from compat_tests.log_interchange.content import Reading, Site
from compat_tests.log_interchange.nodes import Kbroker, Place
from kbroker import __version__

HERE = Path(__file__).parent


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
    """Keep what this version writes."""
    with tempfile.TemporaryDirectory(prefix="kbroker-keep-") as directory:
        place = Place(Path(directory))
        node = Kbroker(place)
        try:
            node.start()
            site = Site(place.bootstrap)
            site.create_topics()
            site.write(0)
            expected = digest(site.read())
        finally:
            node.kill()
        with tarfile.open(HERE / f"{__version__}.tar.xz", "w:xz") as archive:
            archive.add(place.data, "data")
        (HERE / f"{__version__}.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
