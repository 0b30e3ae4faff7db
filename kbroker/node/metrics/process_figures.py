"""Figures of the process, by Linux's ``/proc``; fewer where there is none."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from kbroker.observe.metrics import families as f

if TYPE_CHECKING:
    from kbroker.node.metrics.figures import Figures

_PAGE = os.sysconf("SC_PAGE_SIZE")


def figures(node_id: int, started_ms: int) -> Figures:
    """Processor time, memory, files, and bytes read and written."""
    yield f.START_TIME, [((str(node_id),), started_ms)]
    yield f.CPU_SECONDS, [((), time.process_time())]
    yield f.START_SECONDS, [((), started_ms / 1000)]
    import resource

    yield f.MAJOR_FAULTS, [((), resource.getrusage(resource.RUSAGE_SELF).ru_majflt)]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        yield f.MAX_FILES, [((), soft)]
    try:
        files = len(os.listdir("/proc/self/fd"))
        with open("/proc/self/statm", "rb") as statm:
            resident = int(statm.read().split()[1]) * _PAGE
    except OSError:
        return
    yield f.OPEN_FILES, [((), files)]
    yield f.RESIDENT_BYTES, [((), resident)]
    try:
        with open("/proc/self/io", encoding="ascii") as io:
            counts = dict(line.strip().split(": ") for line in io)
    except (OSError, ValueError):
        return  # not every container shows it
    for name, family in f.LINUX_DISK.items():
        if name in counts:
            yield family, [((), int(counts[name]))]
