"""The folders of programs that work with Kafka are whole, and the page shows what was seen of each."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from compat_tests.works_with.program import (
    FOLDER,
    Program,
    ProgramError,
    Seen,
    SeenOnApache,
    programs,
    read_program,
    read_seen,
    read_seen_on_apache,
    write_seen_on_apache,
)
from compat_tests.works_with.program import write_seen as write
from docs.generate import DOCS
from docs.works_with_page import LANGUAGES, anchor, links_to_tests, on_apache, page

PROGRAMS = programs()
WHOLE = """name = "Name"
kind = "console"
home = "https://example.org"
version = "1"
install = "pip install name==1"
about = "It shows topics."
recipe = ["recipe.py"]
"""


def test_every_folder_is_a_program() -> None:
    folders = {path.parent for path in FOLDER.glob("*/*") if path.is_file() and path.parent.name != "__pycache__"}
    assert folders == {program.folder for program in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.folder.name)
def test_a_program_is_whole(program: Program) -> None:
    assert program.recipe, "a recipe is what the page is for"
    for name in program.recipe:
        assert (program.folder / name).is_file(), f"{name} is missing"
        assert (program.folder / name).suffix in LANGUAGES, f"{name}: add its language to docs/works_with_page.py"
    assert links_to_tests(program), "its test is missing"
    assert program.home.startswith("https://")
    pinned = [
        line
        for path in program.folder.glob("requirements.txt")
        for line in path.read_text("utf-8").splitlines()
        if line and not line.startswith("#") and "==" not in line and "@" not in line
    ]
    assert pinned == [], "versions are exact, so that a test means the same tomorrow"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.folder.name)
def test_the_page_has_what_was_seen(program: Program) -> None:
    text = (DOCS / "works_with.md").read_text("utf-8")
    seen = read_seen(program.folder)
    if seen is None:
        assert f"## {program.name}\n" not in text
        return
    assert seen.program == program.version, "another version: run its test with --works-with --write-seen"
    assert f"## {program.name}\n" in text and f"](#{anchor(program.name)})" in text
    judged = read_seen_on_apache(program.folder)
    assert judged is None or judged.program == program.version, "another version: run it with --broker apache again"
    (row,) = [line for line in text.splitlines() if line.startswith(f"| [{program.name}](")]
    assert row.endswith(f"| {on_apache(program, judged)} |")
    for line in seen.lines:
        assert f"- {line}\n" in text
    for name in program.recipe:
        assert (program.folder / name).read_text("utf-8").strip() in text


def test_the_page_names_nothing_that_was_not_seen() -> None:
    titles = [line.removeprefix("## ") for line in page("").splitlines() if line.startswith("## ")]
    names = [program.name for program in PROGRAMS if read_seen(program.folder) is not None]
    assert [title for title in titles if title in names] == names


def test_a_folder_that_is_not_whole(tmp_path: Path) -> None:
    for text, wrong in (
        ("", "recipe"),
        (WHOLE.replace('version = "1"\n', ""), "version"),
        (WHOLE + 'colour = "blue"\n', "colour"),
        (WHOLE.replace("console", "toaster"), "toaster"),
        ("name =", "program.toml"),
    ):
        (tmp_path / "program.toml").write_text(text, "utf-8")
        with pytest.raises(ProgramError, match=wrong):
            read_program(tmp_path)
    (tmp_path / "program.toml").write_text(WHOLE, "utf-8")
    with pytest.raises(ProgramError, match=r"other\.py"):
        read_program(tmp_path).file("other.py")


def test_what_was_seen_is_read_as_written(tmp_path: Path) -> None:
    seen = Seen("2025-01-31", "0.1", 3, "Python 3.11.2", "1", ('a "quoted" line', "back\\slash, ümlaut"))
    write(tmp_path, seen)
    assert read_seen(tmp_path) == seen
    assert set(tomllib.loads((tmp_path / "seen.toml").read_text("utf-8"))) == set(Seen.__dataclass_fields__)
    assert read_seen_on_apache(tmp_path) is None
    judged = SeenOnApache("2025-01-31", "4.4.0", 1, 'a "quoted" version')
    write_seen_on_apache(tmp_path, judged)
    assert read_seen_on_apache(tmp_path) == judged
    (tmp_path / "program.toml").write_text(WHOLE, "utf-8")
    both = read_program(tmp_path)
    assert (on_apache(both, judged), on_apache(both, None)) == ("4.4.0, one node, 2025-01-31", "not run")
    (tmp_path / "program.toml").write_text(WHOLE + 'only_kbroker = "has no page"\n', "utf-8")
    assert on_apache(read_program(tmp_path), None) == "it has no page"
