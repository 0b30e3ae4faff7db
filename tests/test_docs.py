"""The generated pages of docs/ are what the code says."""

from __future__ import annotations

import re

import pytest

from docs.generate import DOCS, PAGES
from kbroker.config import (
    BROKER_CONFIGS,
    GROUP_CONFIG_BOUNDS,
    GROUP_CONFIG_SYNONYMS,
    TOPIC_CONFIG_SYNONYMS,
    TOPIC_CONFIGS,
)


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == PAGES[name](), f"docs/{name} is out of date: run `make docs`"


def readers() -> str:
    """The code that acts on properties: all but the tables, declarations and checks, the command and its client."""
    package = DOCS.parent / "kbroker"
    texts = [
        # A property that a topic of ours is made with has no effect by that.
        re.sub(r"\(\"[a-z.]+\", \"[a-z0-9]+\"\)", "", path.read_text("utf-8"))
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in ("config", "cli", "client")
    ]
    checks = (package / "config" / "broker_checks.py").read_text("utf-8")
    config = (package / "config" / "broker_config.py").read_text("utf-8") + checks[checks.index("def _check_quorum(") :]
    return "\n".join([*texts, re.sub(r"^    [a-z_]+: .*$", "", config, flags=re.MULTILINE)])


def test_a_property_that_nothing_reads_says_so() -> None:
    """When this fails for a property that you made work: take its `no_effect` out, and run `make docs`."""
    code = readers()
    used = set(re.findall(r"\.([a-z][a-z_0-9]+)\b", code)) | set(re.findall(r"\"([a-z]+(?:\.[a-z]+)+)\"", code))

    def is_used(name: str) -> bool:
        return name.replace(".", "_") in used or name in used

    topics = {name for name in TOPIC_CONFIGS if is_used(name) or not TOPIC_CONFIGS[name].no_effect}
    through_topics = {synonym for name in topics for synonym, _ in TOPIC_CONFIG_SYNONYMS.get(name, ())}
    through_groups = {*GROUP_CONFIG_SYNONYMS.values()}.union(*GROUP_CONFIG_BOUNDS.values())
    wrong = [
        name
        for name, key in BROKER_CONFIGS.items()
        if name not in ("broker.id", "log.dir", "security.inter.broker.protocol")
        and bool(key.no_effect) == (is_used(name) or name in through_topics | through_groups)
    ]
    wrong += [name for name, key in TOPIC_CONFIGS.items() if not (key.internal or key.no_effect or is_used(name))]
    assert wrong == []


def test_every_path_in_the_architecture_exists() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    named = re.findall(r"`([a-z_0-9.]+/[a-z_0-9/.]*|[a-z_0-9]+\.py)`", text)
    assert len(named) > 100
    roots = (DOCS.parent, DOCS.parent / "kbroker", DOCS.parent / "compat_tests" / "cluster")
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_every_command_that_the_pages_name_exists() -> None:
    from kbroker.cli import build_parser

    pages = [path for path in sorted(DOCS.glob("*.md")) if path.name != "commands.md"]
    named = [line for path in pages for line in re.findall(r"`(kbroker [a-z][^`\n]*)`", path.read_text("utf-8"))]
    assert len(named) > 3
    for line in named:
        words = line.split()[1:]
        parser, _ = build_parser(words)
        assert parser.prog == " ".join(["kbroker", *words[: len(parser.prog.split()) - 1]]), line
        assert parser.prog != "kbroker", line
