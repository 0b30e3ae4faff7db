"""The blocks of each page of docs/how_to/ are run in their order, as a reader would run them."""

from __future__ import annotations

import itertools
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kbroker.tools.cli import build_parser
from kbroker.tools.cli.cluster_plan import free_ports
from tests.page_node import ROOT, with_command
from tests.patience import LONG

README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs" / "how_to").glob("*.md"))
TESTED = {
    "go": "go_control/*.go",
    "java": "java_control/**/*.java",
    "js": "node_control/*.mjs",
    "python": "spark_control/project/*.py",
}
"""Languages whose blocks are lines of files of compat_tests that have tests of their own; Python's on Spark's page."""
STEPS = re.compile(r"^<!-- (stop) -->$|^```(console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.slow


VARIABLES = re.compile(r'^ +(KAFKA_[A-Z_]+|CLUSTER_ID): "?(.*?)"?$', re.MULTILINE)


def here(text: str, port: int) -> str:
    """The text with the test's ports in place of 9092 and those after it."""
    return re.sub(r"(127\.0\.0\.1:)909([2-7])\b", lambda match: f"{match[1]}{port + int(match[2]) - 2}", text)


def variables(page: str, port: int, directory: Path) -> dict[str, str]:
    """The environment that a page's compose file gives a container, for a process of this machine."""
    for inside, outside in (("//:", "//127.0.0.1:"), ("kafka:9", "127.0.0.1:9"), ("/var/lib", f"{directory}/volume")):
        page = page.replace(inside, outside)
    return dict(VARIABLES.findall(here(page, port)))


@contextmanager
def running(line: str, port: int, directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """The command of another terminal, until it is to stop."""
    words = [sys.executable, "-m", *shlex.split(line.replace("docker compose up kafka", "kbroker container"))]
    if not {"-c", "container", "--port"} & {*words}:  # a file has the ports of the cluster that it is of
        words += ["--port", str(port)]
    for option in ("--explorer", "--control"):
        if option in words:
            words.insert(words.index(option) + 1, environment[option.strip("-").upper()])
    process = subprocess.Popen(words, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any(line.startswith("kbroker ready: ") for line in process.stdout)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=2 * LONG)
    assert process.returncode == 0


def lines_of(text: str) -> str:
    """The lines without what they are indented by."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize("language", TESTED)
def test_blocks_of_a_language_are_lines_of_its_tested_files(language: str) -> None:
    files = [lines_of(path.read_text("utf-8")) for path in (ROOT / "compat_tests").glob(TESTED[language])]
    pages = [page for page in PAGES if page.stem == "test_in_spark"] if language == "python" else [*PAGES, README]
    blocks = [
        block
        for page in pages
        for block in re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]
    assert blocks
    for piece in "\n\n".join(blocks).split("\n\n"):
        assert any(lines_of(piece).removeprefix("import ") in text for text in files), piece


def test_every_command_is_understood() -> None:
    blocks = [block for page in PAGES for _, _, block in STEPS.findall(page.read_text("utf-8"))]
    count = 0
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        if not line.startswith("kbroker "):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        _, *words = itertools.takewhile(lambda word: word.strip("|&;<>()"), lexer)
        parser, rest = build_parser(words)
        parser.parse_args(rest)  # exits with what is wrong
        count += 1
    assert count > 50


@pytest.mark.everything
@pytest.mark.parametrize(
    "page", [page for page in PAGES if STEPS.search(page.read_text("utf-8"))], ids=lambda page: page.stem
)
def test_the_blocks_in_their_order(page: Path, tmp_path: Path) -> None:
    port, *_, door, explorer, control = free_ports(10, in_row=True)  # of three nodes and their controllers
    environment = with_command(tmp_path / "bin") | {
        "KBROKER_BOOTSTRAP": f"127.0.0.1:{port}",
        "EXPLORER": str(explorer),
        "CONTROL": str(control),
    }
    text = page.read_text("utf-8")
    count = 0
    with ExitStack() as terminals:
        for stop, language, written in STEPS.findall(text):
            block = here(written, port).replace("9192", str(door))
            if stop:
                terminals.close()
            elif language == "console":
                more = variables(text, port, tmp_path) if block.startswith("docker") else {}
                terminals.enter_context(running(block, port, tmp_path, environment | more))
            else:
                block = block.replace("127.0.0.1:9494", f"127.0.0.1:{control}")
                block = block.replace("kbroker watch", f"kbroker watch -b 127.0.0.1:{explorer}")
                done = subprocess.run(
                    ["sh", "-eu", "-c", block],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=2 * LONG,
                )
                assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
                count += 1
    assert count


def test_each_page_is_in_the_list() -> None:
    listed = re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "how_to" / "README.md").read_text("utf-8"))
    assert sorted([*listed, "README.md"]) == [page.name for page in PAGES]
