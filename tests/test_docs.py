"""The generated pages of docs/ are what the code says."""

from __future__ import annotations

import re
import shlex

import pytest

from docs import conf
from docs.generate import DOCS, PAGES
from kbroker.config import (
    BROKER_CONFIGS,
    GROUP_CONFIG_BOUNDS,
    GROUP_CONFIG_SYNONYMS,
    TOPIC_CONFIG_SYNONYMS,
    TOPIC_CONFIGS,
)
from kbroker.config.share_group import SHARE_GROUP_BOUNDS
from kbroker.config.streams_group import STREAMS_GROUP_BOUNDS
from tests.test_links import FOLDERS
from tests.with_each import with_each


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == PAGES[name](), f"docs/{name} is out of date: run `make docs`"


def readers() -> str:
    """The code that acts on properties: all but the tables, declarations and checks, the commands and their client."""
    package = DOCS.parent / "kbroker"
    texts = [
        # A property that a topic of ours is made with has no effect by that.
        re.sub(r"\(\"[a-z.]+\", \"[a-z0-9]+\"\)", "", path.read_text("utf-8"))
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in ("config", "tools", "client")
    ]
    checks = (package / "config" / "broker_checks.py").read_text("utf-8")
    config = "".join(
        (package / "config" / name).read_text("utf-8") for name in ("broker_config.py", "broker/__init__.py")
    )
    config += checks[checks.index("def _check_quorum(") :]
    return "\n".join([*texts, re.sub(r"^    [a-z_]+: .*$", "", config, flags=re.MULTILINE)])


def test_a_property_that_nothing_reads_says_so() -> None:
    """When this fails for a property that you made work: take its `no_effect` out, and run `make docs`."""
    code = readers()
    used = set(re.findall(r"\.([a-z][a-z_0-9]+)\b", code)) | set(re.findall(r"\"([a-z]+(?:\.[a-z]+)+)\"", code))

    def is_used(name: str) -> bool:
        return name.replace(".", "_") in used or name in used

    topics = {name for name in TOPIC_CONFIGS if is_used(name) or not TOPIC_CONFIGS[name].no_effect}
    through_topics = {synonym for name in topics for synonym, _ in TOPIC_CONFIG_SYNONYMS.get(name, ())}
    through_groups = {*GROUP_CONFIG_SYNONYMS.values()}.union(
        *GROUP_CONFIG_BOUNDS.values(), *SHARE_GROUP_BOUNDS.values(), *STREAMS_GROUP_BOUNDS.values()
    )
    wrong = [
        name
        for name, key in BROKER_CONFIGS.items()
        if name not in ("broker.id", "log.dir", "security.inter.broker.protocol")
        and bool(key.no_effect) == (is_used(name) or name in through_topics | through_groups)
    ]
    wrong += [name for name, key in TOPIC_CONFIGS.items() if not (key.internal or key.no_effect or is_used(name))]
    assert wrong == []


ROOT = DOCS.parent
PAGES_WITH_PATHS = {
    "docs/architecture.md": 20,
    "docs/where_is.toml": 100,
    "docs/overview.md": 40,
    "docs/glossary.md": 60,
    "docs/debugging.md": 5,
    "CONTRIBUTING.md": 30,
    "tests/README.md": 30,
}
"""Pages that name files of the code -> how many they name at least."""
PAGES_WITH_PATHS |= {
    f"docs/{folder}/{path.name}": 0
    for folder in ("architecture", "decisions")
    for path in sorted((DOCS / folder).glob("*.md"))
    if path.name != "where.md"  # is made from where_is.toml
}


@with_each(PAGES_WITH_PATHS)
def test_every_path_that_a_page_names_exists(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    named = re.findall(r"`([a-zA-Z_0-9.]+/[a-zA-Z_0-9/.]*|[a-z_0-9]+\.py)`", text)
    assert len(named) >= PAGES_WITH_PATHS[name]
    roots = (ROOT, ROOT / "kbroker", ROOT / "compat_tests" / "cluster")
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_every_module_in_the_overviews_picture_exists() -> None:
    text = (DOCS / "overview.md").read_text("utf-8")
    picture = text[text.index("```text") : text.index("```\n", text.index("```text") + 7)]
    modules = re.findall(r"[a-z_]+\.py", picture)
    assert len(modules) > 8
    assert [name for name in modules if not any((ROOT / "kbroker" / "node").glob(f"*/{name}"))] == []
    folders = re.findall(r"([a-z_]+)/(?=[ :\n])", picture)
    assert {"node", "replicas", "log"} <= set(folders)
    assert [
        name for name in folders if not any((ROOT / "kbroker" / each / name).is_dir() for each in ("", "node"))
    ] == []


def test_every_command_that_the_pages_name_exists() -> None:
    from kbroker.tools.cli import build_parser

    pages = [path for path in sorted(DOCS.rglob("*.md")) if path.name != "commands.md"]
    named = [line for path in pages for line in re.findall(r"`(kbroker [a-z][^`\n]*)`", path.read_text("utf-8"))]
    assert len(named) > 3
    for line in named:
        words = line.split()[1:]
        parser, _ = build_parser(words)
        assert parser.prog == " ".join(["kbroker", *words[: len(parser.prog.split()) - 1]]), line
        assert parser.prog != "kbroker", line


def test_every_environment_variable_of_ours_is_described() -> None:
    text = (DOCS / "debugging.md").read_text("utf-8")
    folders = ("kbroker", "tests", "compat_tests")
    code = "\n".join(path.read_text("utf-8") for each in folders for path in sorted((ROOT / each).rglob("*.py")))
    used = set(re.findall(r"environ(?:\.get\(|\[)\s*\"((?:KBROKER|REGENERATE)_[A-Z_0-9]+)\"", code))
    assert len(used) > 10
    assert {name for name in used if f"`{name}`" not in text} == set()
    shown = set(re.findall(r"`(KBROKER_[A-Z_0-9]+)`", text))
    assert {name for name in shown if name not in code} == set()


def test_the_blocks_of_the_page_about_debugging_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    from kbroker.tools.cli import build_parser

    text = (DOCS / "debugging.md").read_text("utf-8")
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = [line for language, block in blocks if language == "sh" for line in block.splitlines()]
    assert len(commands) > 5
    for line in commands:
        parser, rest = build_parser(shlex.split(line)[1:])
        parser.parse_args(rest)  # exits with what is wrong
    (program,) = (block for language, block in blocks if language == "python")
    exec(program, {})
    assert "def " in capsys.readouterr().out


def test_the_table_of_decisions_is_whole() -> None:
    folder = DOCS / "decisions"
    table = dict(
        re.findall(r"^\| \[\d+\]\((.+?)\) \| (.+?) \|$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    )
    records = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert sorted(table) == [path.name for path in records]
    for path in records:
        lines = path.read_text("utf-8").splitlines()
        assert lines[0] == f"# {int(path.name[:4])}. {table[path.name]}"
        assert [line for line in lines if line.startswith("## ")] == ["## Context", "## Decision", "## Consequences"]


def test_every_package_is_in_the_table_of_layers() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| L")]
    named = {path.rstrip("/") for row in rows for path in re.findall(r"`kbroker/([a-z_]+(?:/|\.py))`", row)}
    package = ROOT / "kbroker"
    there = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    there |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert named == there


def test_every_page_of_the_architecture_is_in_its_table() -> None:
    named = set(re.findall(r"\]\(architecture/(.+?)\)", (DOCS / "architecture.md").read_text("utf-8")))
    assert named == {path.name for path in (DOCS / "architecture").glob("*.md")}


def test_the_sites_menu_has_every_page_that_the_site_takes() -> None:
    """Sphinx refuses a page that no table of contents has; the site itself is built by `make site` alone."""

    def matches(pattern: str, name: str) -> bool:
        regex = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
        return re.fullmatch(regex, name) is not None

    pages = [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]
    names = {page.relative_to(ROOT).as_posix() for page in pages}
    taken = {name for name in names if any(matches(pattern, name) for pattern in conf.include_patterns)}
    below = {
        page.relative_to(ROOT).as_posix() for pattern in conf.BELOW.values() for page in ROOT.glob(f"{pattern}.md")
    }
    in_menu = {f"{page}.md" for pages in conf.menu().values() for page in pages}
    assert in_menu <= taken
    assert taken == in_menu | below | {f"{conf.root_doc}.md"}
    assert set(conf.BELOW) <= {name.removesuffix(".md") for name in in_menu}


def test_docstrings_begin_with_their_subject() -> None:
    """A docstring is hard to read that begins with a clause ("what", "how"), a question, or "one" without a noun."""
    begins_otherwise = re.compile(
        r'^ *r?"""(?:(?:What|Who|Whom|Whose|Whoever|Whatever|How|Which|Why|So|Are)\b'
        r"|As [:`]|One(?:[.,;:]| (?:a|after|by|for|in|more|of|on|that|to|which|who|whose|with|without)\b)).*",
        re.MULTILINE,
    )

    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("kbroker", *FOLDERS)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in begins_otherwise.findall(path.read_text("utf-8"))
    ]
    assert wrong == []
