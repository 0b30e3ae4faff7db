"""Runs the tests that are new or have changed since `main` three times beside a load: `make steady`.

A test that needs luck is found before others meet it. A file is run whole where more than its tests has changed.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.gate.changed import branched_at, changes
from tests.gate.steps import ROOT

ROUNDS = 3
_BUSY = "import os\nwhile os.getppid() == {parent}:\n    sum(range(1_000_000))"


def changed_tests(root: Path = ROOT) -> list[str]:
    """Returns the node ids of pytest, files or functions of files, that are not as they are in `main`."""
    base = branched_at(root)
    found: list[str] = []
    for path in sorted(set(changes(root))):
        if path.startswith(("tests/", "compat_tests/")) and Path(path).match("test_*.py") and (root / path).exists():
            shown = subprocess.run(["git", "show", f"{base}:{path}"], cwd=root, capture_output=True, text=True)
            before, now = _parts(shown.stdout), _parts((root / path).read_text("utf-8"))
            differ = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
            if "" in differ:
                found.append(path)
            else:
                found += [f"{path}::{name}" for name in now if name in differ]
    return found


def _parts(text: str) -> dict[str, str]:
    """Returns the code of each test of a file, by name, and all other code of the file under no name."""
    parts = {"": ""}
    for node in ast.parse(text).body:
        is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        name = node.name if is_test and isinstance(node, ast.FunctionDef) else ""
        parts[name] = parts.get(name, "") + ast.unparse(node)
    return parts


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep processors busy with `processes`, which end with this one."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY.format(parent=os.getpid())]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run_thrice(tests: Sequence[str], options: Sequence[str], root: Path = ROOT, load_processes: int = 0) -> int:
    """Run `tests` three times beside a load, of two processes a processor unless `load_processes` says otherwise.

    Returns the first exit code of pytest that is not 0, or 0.
    """
    suites = [each for folder in ("tests/", "compat_tests/") if (each := [t for t in tests if t.startswith(folder)])]
    with load(load_processes or 2 * (os.cpu_count() or 1)):
        for number in range(1, ROUNDS + 1):
            for suite in suites:
                print(f"== round {number} of {ROUNDS}", flush=True)
                if code := subprocess.run([sys.executable, "-m", "pytest", *suite, *options], cwd=root).returncode:
                    return code
    return 0


if __name__ == "__main__":
    if not (tests := changed_tests()):
        print("no test is new or has changed")
    sys.exit(run_thrice(tests, sys.argv[1:]))
