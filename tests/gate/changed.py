"""Names the test files that depend, by the graph of imports, on what has changed since `main`: `make test CHANGED=1`.

A test that names a command (``start``) depends on the command's module: it may start it as a process.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import grimp

from kbroker.tools.cli import COMMANDS
from tests.gate.steps import ROOT

BY_NAME = {
    "kbroker.handlers.registration": "kbroker.handlers",
    "kbroker.node.shortcuts.cache": "kbroker.node.shortcuts",
    "kbroker.wire.records.versioned": "kbroker.wire.records",
    "kbroker.wire.registry": "kbroker.wire.messages",
    "kbroker.tools.cli.kafka_tools.__main__": "kbroker.tools.cli.kafka_tools",
    "kbroker.node.logs.compaction_pool": "kbroker.node.logs.compaction_worker",
}
"""Modules that import others by their names, which the graph does not see, and the package of these."""

UNIMPORTED = ("conftest.py", "tests/coroutines.py", "tests/flaky.py")


def dependents(changed: Iterable[str]) -> list[str]:
    """Returns the test files, as paths from the root of the repository, that depend on one of the `changed` paths.

    Nobody imports what is no Python, nor a conftest or its plugins: if one in `kbroker/` or `tests/` has changed, all
    tests depend on it, and the tests right in `tests/`, which are those of pages and of the package as a whole, on any
    other.
    """
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("*.py")}
    tests = sorted(path for path in files if Path(path).name.startswith("test_"))
    unimported = [path for path in changed if not path.endswith(".py") or path.endswith(UNIMPORTED)]
    if any(path.startswith(("kbroker/", "tests/")) and not path.endswith(".md") for path in unimported):
        return tests
    graph = _graph()
    affected = {_module(path) for path in changed}
    for module in affected & graph.modules:
        affected |= graph.find_downstream_modules(module)
    imports = {_module(path): _imports(file) for path, file in files.items()}
    while more := {module for module, names in imports.items() if names & affected} - affected:
        affected |= more
    return [path for path in tests if _module(path) in affected or (unimported and path.count("/") == 1)]


@cache
def _graph() -> grimp.ImportGraph:
    graph = grimp.build_graph("kbroker", cache_dir=str(ROOT / ".import_linter_cache"))
    for importer, package in BY_NAME.items():
        for module in graph.find_descendants(package) | {package}:
            if module != importer:
                graph.add_import(importer=importer, imported=module)
    return graph


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _imports(path: Path) -> set[str]:
    """Returns the modules that a file may import: of a name in a package it is not told whether it is one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and node.value in COMMANDS:
            names.add(COMMANDS[node.value].module)
    return names


def changes(root: Path = ROOT) -> list[str]:
    """Returns the paths that differ from the commit at which the branch left `main`, new files included."""
    return _git(root, "diff", "--name-only", branched_at(root)) + _git(
        root, "ls-files", "--others", "--exclude-standard"
    )


def branched_at(root: Path = ROOT) -> str:
    """Returns the commit at which the branch left `main`; on `main`, what was fetched of it last, if it was."""
    for upstream in ("origin/main", "main"):
        found = subprocess.run(["git", "merge-base", "HEAD", upstream], cwd=root, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    raise SystemExit("there is no branch `main` to compare with")


def _git(root: Path, *words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    changed = changes()
    paths = dependents(changed)
    print(f"{len(changed)} changed files; {len(paths)} files of tests depend on them", file=sys.stderr)
    print(" ".join(paths))
