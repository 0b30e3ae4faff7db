"""This machine: limits and clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.facts import Facts
from kbroker.tools.doctor.findings import check

_FILES_OF_SEGMENT: Final = 3
"""A segment's log, offset index and time index."""

_CONNECTIONS: Final = 1_000
"""Room for clients, beside the files of logs."""


@check("file-descriptors", "The limit of open files is too low for the partitions", see="start")
def file_descriptors(facts: Facts) -> Iterator[Finding]:
    """Compare the limit of this user's processes with what the logs of a configuration need."""
    machine, found = facts.machine, facts.configuration
    if machine is None or machine.open_files_hard is None or found is None:
        return
    segments = sum(each.segments for each in found.directories)
    partitions = sum(each.partitions for each in found.directories)
    needed = segments * _FILES_OF_SEGMENT + _CONNECTIONS
    limit = machine.open_files_hard
    if needed > limit / 2:
        yield Finding(
            Severity.ERROR if needed > limit else Severity.WARNING,
            found.source,
            f"A process here may have {limit:,} files open, and the node needs about {needed:,}"
            f"{'' if needed > limit else ', more than half of that'}.",
            f"RLIMIT_NOFILE is {machine.open_files} (hard {limit}); {partitions:,} partitions have {segments:,}"
            f" segments of {_FILES_OF_SEGMENT} files, and {_CONNECTIONS:,} are for connections.",
            "Raise it (LimitNOFILE= of the systemd unit, --ulimit nofile= of the container, limits.conf): 100000 is"
            " usual.",
        )


@check("clock-sync", "This machine's clock follows no time server", see="cluster")
def clock_sync(facts: Facts) -> Iterator[Finding]:
    """Report what the kernel says of its clock."""
    machine = facts.machine
    if machine is not None and machine.clock_synchronised is False:
        error = "" if machine.clock_error_ms is None else f" It may be off by {machine.clock_error_ms / 1000:,.1f} s."
        yield Finding(
            Severity.NOTE,
            "clock",
            "Nothing keeps this machine's clock right.",
            f"The kernel says that it is not synchronised (adjtimex).{error}",
            "Run chrony or systemd-timesyncd, on the host if this is a container.",
        )
