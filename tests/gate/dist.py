"""Installs what `make dist` has built in an empty environment of each Python, and runs README's recipes there.

    python -m tests.gate.dist              each CPython from 3.11 on that this machine has
    python -m tests.gate.dist --newest     the newest alone

The source archive is installed first: its files must be those of the wheel. A dependency without a wheel for a Python
is built from its source, and named.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kbroker import __version__
from tests.gate.steps import ROOT

CLIENTS = ("kafka-python", "confluent-kafka", "pytest")
"""Packages that README's recipes need besides kbroker and its extra `all`."""
_ABOUT = "import sys, venv, ensurepip; print(sys.implementation.name, *sys.version_info[:2], sys.executable)"
_FILES = """
import importlib.metadata
for path in importlib.metadata.files("kbroker"):
    if path.suffix != ".pyc" and path.parts[0] == "kbroker":
        print(path, path.hash.value)
"""


def pythons() -> dict[tuple[int, int], str]:
    """Returns the CPythons from 3.11 on of this machine: the version, and the path of the first that has it."""
    places = [*os.environ["PATH"].split(os.pathsep), *map(str, Path.home().glob(".pyenv/versions/3.*/bin"))]
    found: dict[tuple[int, int], str] = {}
    for place in map(Path, places):
        for path in (place / name for name in ("python3", *(f"python3.{minor}" for minor in range(11, 30)))):
            if (place / "../pyvenv.cfg").exists() or not os.access(path, os.X_OK):
                continue
            about = subprocess.run([path, "-c", _ABOUT], capture_output=True, text=True).stdout.split(maxsplit=3)
            if about[:1] == ["cpython"] and (version := (int(about[1]), int(about[2]))) >= (3, 11):
                found.setdefault(version, about[3].strip())
    return dict(sorted(found.items()))


def run(command: list[str | Path], **options: object) -> str:
    """Returns what a command prints, which must succeed."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return str(done.stdout)


def install(python: Path, environment: Mapping[str, str], *what: str) -> list[str]:
    """Install packages, by wheels where there are any; returns the names of those that were built from source."""
    said = run([python, "-m", "pip", "install", "--prefer-binary", *what], env=environment)
    return re.findall(r"^Building wheels for collected packages: (.+)$", said, re.MULTILINE)


def check(base: str, directory: Path, wheel: Path, archive: Path) -> bool:
    """Whether both install in an empty environment of a Python, and README's recipes run there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    python = directory / "environment" / "bin" / "python"
    run([base, "-m", "venv", directory / "environment"], env=environment)
    files = []
    for each in (archive, wheel):
        built = install(python, environment, "--force-reinstall", "--no-deps", str(each))
        assert built == (["kbroker"] if each is archive else [])
        files.append(run([python, "-c", _FILES], env=environment, cwd=directory))
    if files[0] != files[1]:
        raise SystemExit(f"{archive.name} installs other files than {wheel.name} has")
    built = install(python, environment, f"{wheel}[all]", *CLIENTS)
    print(f"  without a wheel, built from source: {', '.join(built)}" if built else "  a wheel for every dependency")
    assert run([python, "-m", "kbroker", "--version"], env=environment, cwd=directory).split()[-1] == __version__
    tests = [sys.executable, "-m", "pytest", "-q", "tests/test_readme.py", "-k", "test_recipe", "-m", "not spark"]
    return not subprocess.run(tests, cwd=ROOT, env=os.environ | {"KBROKER_RECIPES_PYTHON": str(python)}).returncode


def main() -> int:
    """Check each Python, or the newest; returns 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate.dist", description="Installs and tries what was built.")
    parser.add_argument("--newest", action="store_true", help="the newest Python of this machine alone")
    [wheel], [archive] = (list(ROOT.glob(f"dist/kbroker-{__version__}{end}")) for end in ("-*.whl", ".tar.gz"))
    found = pythons()
    failed = []
    for version in list(found)[-1:] if parser.parse_args().newest else found:
        name = ".".join(map(str, version))
        print(f"Python {name}, {found[version]}", flush=True)
        directory = Path(tempfile.mkdtemp(prefix="kbroker-dist-"))
        try:
            if not check(found[version], directory, wheel, archive):
                failed.append(name)
        finally:
            shutil.rmtree(directory)
    if failed:
        print(f"README's recipes fail on Python {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
