"""The process in which logs are compacted: it reads jobs from its standard input and answers on its standard output.

Each is one line of JSON. The process ends with its input, and never outlives the broker for longer than a chunk of
a file: an orphan must not write beside the broker that was started after it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from kbroker.log.compaction.job import CompactionFailed, CompactionJob, CompactionResult, SegmentToClean
from kbroker.log.disk import OsDisk
from kbroker.log.segments.cleaned_segment import CleanedSegment
from kbroker.log.segments.indexed_file import CorruptSegment

NICENESS = 10
"""The process is this nice, so that requests go first."""


def encode_job(job: CompactionJob, bytes_per_second: float) -> bytes:
    """The line of JSON that orders one compaction."""
    return json.dumps({"job": dataclasses.asdict(job), "rate": bytes_per_second}).encode() + b"\n"


def decode_job(line: bytes) -> tuple[CompactionJob, float]:
    """The job and its rate in bytes a second, from a line of :func:`encode_job`."""
    content = json.loads(line)
    fields: dict[str, Any] = content["job"]
    fields["segments"] = [SegmentToClean(**segment) for segment in fields["segments"]]
    fields["producers"] = {int(key): (last, epoch) for key, (last, epoch) in fields["producers"].items()}
    return CompactionJob(**fields), float(content["rate"])


def encode_answer(outcome: CompactionResult | BaseException) -> bytes:
    """The line of JSON with the result of one compaction, or its error."""
    content: dict[str, Any]
    if isinstance(outcome, CompactionResult):
        content = dataclasses.asdict(outcome)
        content["segments"] = [list(segment) for segment in outcome.segments]
    elif isinstance(outcome, CorruptSegment):
        content = {"corrupt": [outcome.path, outcome.position, outcome.reason]}
    elif isinstance(outcome, OSError):
        content = {"errno": outcome.errno, "text": outcome.strerror or str(outcome), "path": str(outcome.filename)}
    else:
        content = {"failure": "".join(traceback.format_exception(outcome))}
    return json.dumps(content).encode() + b"\n"


def decode_answer(line: bytes) -> CompactionResult:
    """The result from a line of :func:`encode_answer`; raises the error if the line holds one."""
    content = json.loads(line)
    if "corrupt" in content:
        raise CorruptSegment(*content["corrupt"])
    if "errno" in content:
        raise OSError(content["errno"], content["text"], content["path"])
    if "failure" in content:
        raise CompactionFailed(content["failure"])
    content["segments"] = [CleanedSegment(*segment) for segment in content["segments"]]
    return CompactionResult(**content)


class Pace:
    """Limits the rate of bytes by sleeping, and raises ``SystemExit`` once the parent process has ended."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        parent: Callable[[], int] = os.getppid,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._parent = parent
        self._own_parent = parent()
        self._ready_at = clock()

    def __call__(self, size: int) -> None:
        if self._parent() != self._own_parent:
            raise SystemExit("the broker is gone")
        now = self._clock()
        self._ready_at = max(self._ready_at, now) + size / self._rate
        if self._ready_at - now > 0.001:
            self._sleep(self._ready_at - now)


def _stand_back() -> None:
    """Let everyone else run first, as far as the system can."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # The scheduler lets any waking process preempt a batch process at once.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    """Serve until the input ends."""
    from kbroker.log.compaction.compactor import compact  # here: the broker imports this module for its lines alone

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, for the broker alone
    _stand_back()
    disk = OsDisk()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    while line := sys.stdin.buffer.readline():
        job, rate = decode_job(line)
        outcome: CompactionResult | BaseException
        try:
            outcome = compact(job, disk, pace=Pace(rate))
        except Exception as error:
            outcome = error
        try:
            answers.write(encode_answer(outcome))
            answers.flush()
        except BrokenPipeError:
            return  # the broker has ended meanwhile, and nobody wants to know


if __name__ == "__main__":
    main()
