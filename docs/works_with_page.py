"""docs/works_with.md: the programs around Kafka that were seen at work on kbroker, from compat_tests/works_with/."""

from __future__ import annotations

from compat_tests.works_with.program import KINDS, Program, Seen, SeenOnApache, programs, read_seen, read_seen_on_apache

LANGUAGES = {
    ".java": "java",
    ".json": "json",
    ".properties": "properties",
    ".py": "python",
    ".sh": "sh",
    ".sql": "sql",
    ".toml": "toml",
    ".txt": "text",
    ".xml": "xml",
    ".yaml": "yaml",
    ".yml": "yaml",
}
"""Suffix of a file -> its language, as a block of code names it."""


def page(note: str) -> str:
    """The text of the page; ``note`` says how it is made."""
    shown = [(program, seen) for program in programs() if (seen := read_seen(program.folder)) is not None]
    lines = [
        "# Works with",
        "",
        note,
        "Each of these programs ran a recipe on kbroker, and another client judged what came out, record by record.",
        "The recipes are the files that ran, unchanged; they take the brokers' addresses from outside. Each test can",
        "be run again, on kbroker or on Apache Kafka: [compat_tests/works_with](../compat_tests/works_with/README.md).",
        "The last column says where and when the same test has passed on Apache Kafka.",
        "Clients and Kafka's own tools have [a page of their own](compatibility.md).",
        "",
        "| Program | Kind | Version | Seen on kbroker | Nodes | Same test on Apache Kafka |",
        "| --- | --- | --- | --- | ---: | --- |",
    ]
    for program, seen in shown:
        link = f"[{program.name}](#{anchor(program.name)})"
        cells = [link, KINDS[program.kind], seen.program, f"{seen.kbroker}, {seen.date}", str(seen.nodes)]
        lines.append(f"| {' | '.join([*cells, on_apache(program, read_seen_on_apache(program.folder))])} |")
    for program, seen in shown:
        lines += ["", *section(program, seen)]
    return "\n".join([*lines, ""])


def section(program: Program, seen: Seen) -> list[str]:
    """A program: its text, recipe, and what was seen."""
    lines = [f"## {program.name}", "", f"<{program.home}>", "", program.about, ""]
    lines += [*(f"    {command}" for command in (program.install, program.run) if command), ""]
    for name in program.recipe:
        path = program.folder / name
        text = path.read_text("utf-8").rstrip("\n")
        lines += [f"`{name}`:", "", f"```{LANGUAGES.get(path.suffix, 'text')}", text, "```", ""]
    runtime = f", {seen.runtime}" if seen.runtime else ""
    lines += [
        f"Seen on {nodes_in_words(seen.nodes)} of kbroker {seen.kbroker}, with {program.name} {seen.program}{runtime}:",
        "",
    ]
    lines += [f"- {line}" for line in seen.lines]
    if program.note:
        lines += ["", program.note]
    return [*lines, "", f"The test: {', '.join(links_to_tests(program))}."]


def on_apache(program: Program, seen: SeenOnApache | None) -> str:
    """Cell of the table: where the same test has passed on Apache Kafka."""
    if program.only_kbroker:
        return f"it {program.only_kbroker}"
    return "not run" if seen is None else f"{seen.kafka}, {nodes_in_words(seen.nodes)}, {seen.date}"


def nodes_in_words(count: int) -> str:
    """A number of nodes, in words."""
    return "one node" if count == 1 else f"{count} nodes"


def links_to_tests(program: Program) -> list[str]:
    """Links to a program's tests."""
    root = program.folder.parents[2]
    paths = [root / program.test] if program.test else sorted(program.folder.glob("test_*.py"))
    return [f"[{path.name}](../{path.relative_to(root)})" for path in paths]


def anchor(heading: str) -> str:
    """The name by which code hosts know a heading."""
    return "".join(each for each in heading.lower().replace(" ", "-") if each.isalnum() or each in "-_")
