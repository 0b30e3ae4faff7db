"""Runs the steps of the gate side by side, and what failed in them once more, alone.

    python -m tests.gate first                    what a change must pass (.ci/run)
    python -m tests.gate everything               all tests that there are (make everything)
    python -m tests.gate everything --part 2/3    the second of three parts, each for a machine of its own

A test that fails beside others and passes alone is printed as unsteady, and does not refuse a change; give it the mark
of `tests/flaky.py`. Nothing is run again where more than ten tests failed, or where pytest came to no end.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from tests.gate.cases import MOST_FAILURES, Case, failed, read_cases, skips, unsteady
from tests.gate.steps import FIRST, INSTALL_SECOND, INSTALLS, REST, ROOT, Step, part_of

ROWS = 3
"""Steps that run at a time: tests of nodes, of clients and of clusters wait most of their time."""


@dataclass
class Run:
    """The end of a step: its exit code, seconds on the clock and of the processors, and its test cases."""

    step: Step
    log: Path
    code: int
    seconds: float
    processor_seconds: float
    cases: list[Case]
    unsteady: list[Case] = field(default_factory=list)

    @property
    def tests_failed(self) -> bool:
        """Whether pytest came to its end, and tests failed: what make says of pytest's exit code 1."""
        text = self.log.read_text(errors="replace")
        return bool(
            self.code and failed(self.cases) and re.search(r"^make.*: \*\*\* \[.*\] Error 1$", text, re.MULTILINE)
        )

    @property
    def refuses(self) -> bool:
        """Whether a change must not land for the step."""
        return (
            bool(self.code)
            and not self.step.optional
            and not (self.unsteady and len(self.unsteady) == len(failed(self.cases)))
        )

    def row(self) -> str:
        """Returns the step's line of the table."""
        outcome = f"FAILED ({self.code})" if self.refuses else "unsteady" if self.code else "passed"
        if any(line.startswith("skipped: ") for line in self.log.read_text(errors="replace").splitlines()[:3]):
            outcome = "skipped"
        counts = [
            f"{number} {name}"
            for name in ("passed", "failed", "excused", "skipped")
            if (number := sum(case.outcome == name for case in self.cases))
        ]
        times = f"{self.seconds:5.0f} s {self.processor_seconds:6.0f} s CPU"
        return f"{self.step.name:<32} {outcome:<12} {times}  {', '.join(counts)}"


def run(step: Step, directory: Path, again: bool = False, root: Path = ROOT) -> Run:
    """Run `step` in `root`, its output into files of `directory`; `again`: those of its tests that failed last,
    one after the other."""
    stem = re.sub(r"\W+", "-", step.name)
    log = directory / f"{stem}{'-again' if again else ''}.log"
    report = log.with_suffix(".xml")
    options = [
        f"--junit-xml={report}",
        f"-o cache_dir={directory / stem}",
        # Where the time goes; and of a test that hangs, where: its stacks are in the log long before the step is ended.
        "--durations=25 -o faulthandler_timeout=600",
        *(["--last-failed --last-failed-no-failures none"] if again else []),
    ]
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES")}
    environment = inherited | {"PYTEST_ADDOPTS": " ".join(options), "LC_ALL": "C.UTF-8"}
    # A shell lets what it starts in the background ignore interrupts, and some tests send one. An interrupt has pytest
    # say what has failed so far, and where it was.
    command = ["env", "--default-signal=INT,QUIT", "timeout", "--signal=INT", "--kill-after=30", str(step.limit)]
    begin = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "make", *step.arguments, *(["WORKERS=0"] if again else [])],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begin
    return Run(step, log, process.returncode, seconds, usage.ru_utime + usage.ru_stime, read_cases(report))


def run_all(steps: Iterable[Step], directory: Path) -> list[Run]:
    """Run `steps`, `ROWS` at a time, and print each as it ends."""
    waiting: queue.SimpleQueue[Step] = queue.SimpleQueue()
    runs: list[Run] = []
    for step in steps:
        waiting.put(step)

    def row() -> None:
        while True:
            try:
                step = waiting.get_nowait()
            except queue.Empty:
                return
            done = run(step, directory)
            runs.append(done)
            print(done.row(), flush=True)

    rows = [threading.Thread(target=row) for _ in range(ROWS)]
    for each in rows:
        each.start()
    for each in rows:
        each.join()
    return runs


def run_again(runs: Sequence[Run], directory: Path, root: Path = ROOT) -> None:
    """Run what failed in `runs` once more, step by step, and note in each run which of its failures passed."""
    runs = [each for each in runs if each.tests_failed]
    if sum(len(failed(each.cases)) for each in runs) > MOST_FAILURES:
        print(f"more than {MOST_FAILURES} tests failed: none is run again")
        return
    for each in runs:
        print(f"\n== {each.step.name}: {len(failed(each.cases))} failed, run again alone", flush=True)
        second = run(each.step, directory, again=True, root=root)
        each.unsteady = unsteady(each.cases, second.cases)
        print(second.log.read_text(errors="replace"))


def print_logs(runs: Sequence[Run]) -> None:
    """Print the whole output of each run."""
    for each in runs:
        print(f"\n== {each.step.name}\n{each.log.read_text(errors='replace')}")


def print_verdict(runs: Sequence[Run], seconds: float) -> None:
    """Print the table of `runs`, what was skipped and why, what is unsteady with its traceback, and what failed."""
    cases = [case for each in runs for case in each.cases]
    print(f"\n== summary, {seconds:.0f} s")
    for each in runs:
        print(each.row())
    print("\n== skipped")
    for reason, number in skips(cases):
        print(f"{number:5d}  {reason}")
    for each in runs:
        for case in each.unsteady:
            print(f"\n== unsteady: {case.name} (failed beside others, passed alone)\n{case.text}")
            print(f'mend it now, or mark it: @pytest.mark.flaky(since="{date.today()}", why="...")')
    for case in (case for case in cases if case.outcome == "excused"):
        print(f"excused: {case.name}: {case.text}")
    for each in runs:
        for case in failed(each.cases):
            if case not in each.unsteady:
                print(f"failed: {each.step.name}: {case.name}")
    unsteady_cases = sum(len(each.unsteady) for each in runs)
    passed = sum(case.outcome == "passed" for case in cases) + unsteady_cases
    skipped = sum(case.outcome in ("skipped", "excused") for case in cases)
    print(f"\n{passed} passed, {len(failed(cases)) - unsteady_cases} failed, {skipped} skipped")


def steps_of(tier: str, part: str) -> tuple[list[Step], list[Step]]:
    """Returns what is installed for, and what is run in, the `part` K/N of a `tier`."""
    if tier == "first":
        return INSTALLS, FIRST
    number, count = (int(word) for word in part.split("/"))
    return [*INSTALLS, INSTALL_SECOND], part_of([*FIRST, *REST], number, count)


def main() -> int:
    """Run a tier; returns 0 if all of it passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description="Runs what a change must pass.")
    parser.add_argument("tier", choices=("first", "everything"))
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts that take about as long")
    parser.add_argument("--only", metavar="WORD", help="the steps with this word in their name")
    arguments = parser.parse_args()
    installs, steps = steps_of(arguments.tier, arguments.part)
    steps = [step for step in steps if (arguments.only or "") in step.name]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kbroker-gate-") as name:
        directory = Path(name)
        runs = run_all(installs, directory)
        if not any(each.refuses for each in runs):
            done = run_all(steps, directory)
            print_logs(done)
            run_again(done, directory)
            runs += done
        else:
            print_logs(runs)
        print_verdict(runs, time.monotonic() - begin)
        return int(any(each.refuses for each in runs))


if __name__ == "__main__":
    sys.exit(main())
