"""A program that works with Kafka: what its folder says of it, and where its packages or jars are.

``program.toml`` has the text and names the files of the recipe; ``seen.toml`` has what a run of its test has seen, and
``seen_on_apache.toml`` that the same test has passed on Apache Kafka.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.apache_kafka import cache_dir, locked

FOLDER = Path(__file__).parent
KINDS = {
    "registry": "schema registry",
    "framework": "framework for applications",
    "processing": "stream processing",
    "connector": "connector",
    "tables": "topics as tables",
    "change source": "changes of a database",
    "metrics": "metrics",
    "console": "console",
}
"""Kind of a program -> its words on the page. The page has the kinds in this order."""


class ProgramError(Exception):
    """A program's folder is not whole, or its packages cannot be had; the message says why."""


@dataclass(frozen=True)
class Seen:
    """The content of seen.toml: when, on what and with what the test ran, and the facts that it told."""

    date: str
    kbroker: str
    nodes: int
    runtime: str
    program: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class SeenOnApache:
    """The content of seen_on_apache.toml: when, and on how many nodes of which Apache Kafka the same test passed."""

    date: str
    kafka: str
    nodes: int
    program: str


@dataclass(frozen=True)
class Program:
    """The content of a folder's program.toml.

    ``run`` is the command that starts the recipe, for a person; ``needs_python`` the version of Python that it needs,
    if the test's own does not do; ``test`` is empty where the test lies in the folder itself. ``only_kbroker`` says why
    the test cannot run on Apache Kafka, which is the subject of these words.
    """

    folder: Path
    name: str
    kind: str
    home: str
    version: str
    install: str
    about: str
    recipe: tuple[str, ...]
    run: str = ""
    note: str = ""
    needs_python: str = ""
    test: str = ""
    only_kbroker: str = ""

    @property
    def cache(self) -> Path:
        """The directory of what is fetched and built for the program."""
        return cache_dir() / "works-with" / self.folder.name

    def file(self, name: str) -> Path:
        """A file of the recipe. `ProgramError` for one that program.toml does not name: the page would not show it."""
        if name not in self.recipe:
            raise ProgramError(f"{name} is not in the recipe of {self.folder.name}/program.toml")
        return self.folder / name

    def python(self) -> Path:
        """The Python of an environment of its own with the folder's requirements.txt, made on first use."""

        def make(home: Path, requirements: Path) -> None:
            _run([_interpreter(self.needs_python), "-m", "venv", str(home)])
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, "-r", str(requirements)])

        return self._fetched("python", "requirements.txt", make) / "bin" / "python"

    def jars(self) -> list[Path]:
        """The jars of the folder's pom.xml and all that they need at run time, fetched by Maven on first use."""

        def make(home: Path, pom: Path) -> None:
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={home}"]
            _run(["mvn", "-q", "-B", "-f", str(pom), *goal])

        return sorted(self._fetched("jars", "pom.xml", make).glob("*.jar"))

    def _fetched(self, name: str, list_name: str, make: Callable[[Path, Path], None]) -> Path:
        """The cache's directory `name`, which `make` fills by a list of the folder; anew if the list has changed."""
        wanted = (self.folder / list_name).read_text("utf-8")
        home = self.cache / name
        made = home / list_name
        with locked(f"works-with-{self.folder.name}"):
            if not made.exists() or made.read_text("utf-8") != wanted:
                shutil.rmtree(home, ignore_errors=True)
                make(home, self.folder / list_name)
                made.write_text(wanted, "utf-8")
        return home

    def classes(self, *sources: str) -> Path:
        """The directory of the compiled sources of the recipe, in which they are compiled anew."""
        home = self.cache / "classes"
        path = ":".join(map(str, self.jars()))
        with locked(f"works-with-{self.folder.name}"):
            shutil.rmtree(home, ignore_errors=True)
            _run(["javac", "-nowarn", "-d", str(home), "-cp", path, *(str(self.file(name)) for name in sources)])
        return home

    def binary(self, package: str = ".", *tags: str) -> Path:
        """A program that Go builds by the folder's go.mod: its main.go, or a package that it names; Go knows what has
        changed."""
        made = self.cache / "bin" / (self.folder.name if package == "." else package.rpartition("/")[2])
        build = ["go", "build", "-C", str(self.folder), "-tags", ",".join(tags), "-o", str(made), package]
        with locked(f"works-with-{self.folder.name}"):
            _run(build)
        return made

    def runtime(self) -> str:
        """The Python or the Java that the program runs on, with its version; empty for another."""
        if (self.folder / "requirements.txt").exists():
            return _run([str(self.python()), "--version"]).strip()
        if (self.folder / "pom.xml").exists():
            return f"Java {_run(['java', '-version']).split(chr(34))[1]}"
        return ""


def read_program(folder: Path) -> Program:
    """The program of a folder. `ProgramError` if its program.toml lacks something or has too much."""
    try:
        values = tomllib.loads((folder / "program.toml").read_text("utf-8"))
        program = Program(folder=folder, **{**values, "recipe": tuple(values["recipe"])})
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ProgramError(f"{folder.name}/program.toml: {error}") from error
    if program.kind not in KINDS:
        raise ProgramError(f"{folder.name}/program.toml: kind {program.kind!r} is none of {', '.join(KINDS)}")
    return program


def read_seen(folder: Path) -> Seen | None:
    """Content of a folder's seen.toml, None where nothing has been seen yet."""
    path = folder / "seen.toml"
    if not path.exists():
        return None
    values = tomllib.loads(path.read_text("utf-8"))
    return Seen(**{**values, "lines": tuple(values["lines"])})


def write_seen(folder: Path, seen: Seen) -> None:
    """Write seen.toml."""
    lines = ["# Written by the test: pytest --works-with --write-seen"]
    lines += _assignments(seen, "date", "kbroker", "nodes", "runtime", "program")
    lines += ["lines = [", *(f"    {json.dumps(line, ensure_ascii=False)}," for line in seen.lines), "]"]
    (folder / "seen.toml").write_text("\n".join(lines) + "\n", "utf-8")


def read_seen_on_apache(folder: Path) -> SeenOnApache | None:
    """Content of a folder's seen_on_apache.toml, None where the test has not passed there yet."""
    path = folder / "seen_on_apache.toml"
    return SeenOnApache(**tomllib.loads(path.read_text("utf-8"))) if path.exists() else None


def write_seen_on_apache(folder: Path, seen: SeenOnApache) -> None:
    """Write seen_on_apache.toml."""
    lines = ["# Written by the test: pytest --works-with --broker apache --write-seen"]
    lines += _assignments(seen, "date", "kafka", "nodes", "program")
    (folder / "seen_on_apache.toml").write_text("\n".join(lines) + "\n", "utf-8")


def programs() -> list[Program]:
    """All programs: by kind, then by name."""
    found = [read_program(path.parent) for path in FOLDER.glob("*/program.toml")]
    return sorted(found, key=lambda program: (list(KINDS).index(program.kind), program.name.lower()))


def _assignments(of: Seen | SeenOnApache, *names: str) -> list[str]:
    """Lines of TOML with these fields."""
    return [f"{name} = {json.dumps(getattr(of, name), ensure_ascii=False)}" for name in names]


def _interpreter(version: str) -> str:
    """A Python of a version such as 3.12, or the one that runs this. `ProgramError` if there is none."""
    if not version:
        return sys.executable
    builds = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, builds)):
        if (
            candidate is not None
            and not subprocess.run([candidate, "-c", "import venv"], capture_output=True).returncode
        ):
            return candidate
    raise ProgramError(f"there is no Python {version} on this machine")


def _run(command: Sequence[str]) -> str:
    """The output of a command. `ProgramError` if it is missing or fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise ProgramError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise ProgramError(f"{' '.join(command[:4])} ... failed: {done.stdout[-3000:]}")
    return done.stdout
