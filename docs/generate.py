"""Writes the pages of docs/ that are made from the code: ``make docs``. A test fails when they are out of date."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

DOCS = Path(__file__).parent
NOTE = "<!-- Made by docs/generate.py from the code: change that and run `make docs`. -->\n"


def configuration() -> str:
    """The page of every property, by scope."""
    from docs.configuration_page import page

    return page(NOTE)


def metrics() -> str:
    """The page of metrics, from the table of families."""
    from docs.metrics_page import page

    return page(NOTE)


def top() -> str:
    """The page of ``kbroker top``, with a screen that its core draws."""
    from docs.top_page import page

    return page(NOTE)


def doctor() -> str:
    """The page of ``kbroker doctor``, from its checks."""
    from docs.doctor_page import page

    return page(NOTE)


def apis() -> str:
    """The page of the APIs that are served, from the handlers' registrations."""
    from kbroker.handlers import load_handlers
    from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
    from kbroker.wire.registry import API_KEYS

    load_handlers()
    broker, controller = registrations(BROKER), registrations(CONTROLLER)
    served = {**broker, **controller}

    def versions(key: int) -> str:
        low, high = served[key].versions
        return str(low) if low == high else f"{low}-{high}"

    lines = [
        "# APIs served",
        "",
        NOTE,
        "What is not in this table is not advertised either. The versions that exist are those of Apache Kafka 4.4.",
        "Which improvements of Apache Kafka are there, and which are missing, is on [a page of its own](kips.md).",
        "",
        "| Key | API | Versions that exist | Served | Broker | Controller | Handler |",
        "| ---: | --- | --- | --- | --- | --- | --- |",
    ]
    for key in sorted(served):
        api = API_KEYS[key]
        module = served[key].handle.__module__.replace(".", "/") + ".py"
        lines.append(
            f"| {key} | {api.name} | {api.valid_versions} | {versions(key)} | {'yes' if key in broker else ''} "
            f"| {'yes' if key in controller else ''} | `{module}` |"
        )
    return "\n".join([*lines, "", *own_fields(sorted(served)), ""])


def own_fields(keys: Sequence[int]) -> list[str]:
    """The section of the tagged fields that messages of these APIs have besides those of Kafka's definitions."""
    from kbroker.wire.registry import API_KEYS
    from kbroker.wire.schema import is_own, struct_spec

    def rows(cls: type[object], api: str, path: str) -> Iterator[str]:
        for field in struct_spec(cls).fields:
            inner = field.type.element or field.type
            if is_own(field):
                yield f"| {api} | `{path}{field.name}` | {field.tag} |"
            elif inner.struct is not None:
                yield from rows(inner.struct, api, f"{path}{field.name}{'[]' if field.type.element else ''}.")

    found = []
    for key in keys:
        api = API_KEYS[key]
        found += [*rows(api.request, f"{api.name}, request", ""), *rows(api.response, f"{api.name}, response", "")]
    return [
        "## Fields of kbroker's own",
        "",
        "Tagged fields (KIP-482) that Apache Kafka's definitions do not have. Other clients and brokers skip them, and",
        "are sent none: [decision 26](decisions/0026-own-tagged-fields.md).",
        "",
        "| Message | Field | Tag |",
        "| --- | --- | ---: |",
        *found,
    ]


def permissions() -> str:
    """The page of the operations that APIs ask for, from the table of ``handlers.common.permissions``."""
    from kbroker.handlers.common.permissions import ON_CONTROLLER, PERMISSIONS, Permission, Shown
    from kbroker.wire.registry import API_KEYS

    def needed(row: Permission) -> str:
        text = f"{row.operation.name} on {row.resource_type.name}"
        for each in row.instead:
            where = f"any {each.resource_type.name}" if each.any_resource else each.resource_type.name
            text += f", or {each.operation.name} on {where}"
        return text

    lines = [
        "# Permissions by API",
        "",
        NOTE,
        "With an authorizer, a request needs these operations to be allowed, as with Apache Kafka 4.4. READ, WRITE,",
        "DELETE and ALTER allow DESCRIBE, ALTER_CONFIGS allows DESCRIBE_CONFIGS, and ALL allows everything. A topic",
        "that a principal may not describe is answered alike whether it exists or not; ids of topics are no secret.",
        "A request is asked when it comes; those that wait are on [another page](authorization.md#requests-that-wait).",
        "",
        "| Key | API | For | Needs | A denial | Error |",
        "| ---: | --- | --- | --- | --- | --- |",
    ]
    for key, api in sorted(API_KEYS.items()):
        if PERMISSIONS.get(api.name) == ():
            lines.append(f"| {key} | {api.name} |  | nothing |  |  |")
        for where, rows in (("", PERMISSIONS), ("a controller's listener", ON_CONTROLLER)):
            for row in rows.get(api.name, ()):
                has_error = row.shown in (Shown.REQUEST, Shown.ENTRY)
                lines.append(
                    f"| {key} | {api.name} | {', '.join(filter(None, (where, row.when)))} | {needed(row)} "
                    f"| {row.shown.value} | {row.error.name if has_error else ''} |"
                )
    lines.append("")
    return "\n".join(lines)


def commands() -> str:
    """Every command with its options, from the parsers."""
    from kbroker.tools.cli import COMMANDS
    from kbroker.tools.cli.common import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
    from kbroker.tools.cli.examples import examples_of
    from kbroker.tools.cli.parser import all_parsers

    shared = {"--help", "--bootstrap-server", "--profile", "--command-config", "--timeout"}

    def words(text: str) -> str:
        return text.replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")

    lines = [
        "# Commands",
        "",
        NOTE,
        "`kbroker COMMAND --help` says the same. `topic`, `produce`, `consume`, `group`, `txn`, `config`, `cluster`,",
        "`user`, `token`, `acl`, `quota`, `doctor`, `bundle` and `top` talk to",
        f"any Kafka cluster: to `-b HOST:PORT[,...]`, or `${BOOTSTRAP_VARIABLE}`, or {DEFAULT_BOOTSTRAP}. They try",
        "again what may pass (a leader that moves, a coordinator that loads) for `--timeout` seconds, 30 by default.",
        "`--command-config FILE` has Kafka's client properties, for clusters that are [secured](security/README.md).",
        "`--profile NAME` stands for both, see [kbroker profile](#kbroker-profile).",
        "",
        "- Tables are for people. `--json` writes JSON and nothing else to standard output: one document, an object",
        "  about one thing or a list about several; of what may have no end (`consume`, `watch`, `dump-log`,",
        "  `scrub`, saved exchanges of `decode`) an object a line. Names stay as they are, others may be added.",
        "  Without it are only what runs until it is told to stop (`start`, `up`, `faults`, `container`, `console`),",
        "  what writes for another program (`completion`, `certs`), and the changes of `profile`.",
        "- Exit code 0: done. 1: not done, or not all of it; standard error has a line for each problem. 2: wrong",
        "  usage.",
        "- Times without a zone are in UTC, in what is read and in what is shown.",
        "- Without a terminal there are no colours and no progress, and lines are as long as they need to be. In one,",
        "  what takes longer than a second tells so on standard error. What deletes something asks first, or wants",
        "  `--yes`; so does every change of a protected cluster (`kbroker profile set --protected`).",
        "",
    ]
    section = ""
    for name, parser in all_parsers(COMMANDS):
        command = name.split()[0]
        if command != section:
            section = command
            if COMMANDS[command].actions:
                lines += [f"## kbroker {command}", "", f"{words(COMMANDS[command].summary.capitalize())}.", ""]
        level = "###" if COMMANDS[command].actions else "##"
        usage = " ".join(parser.format_usage().split()).removeprefix("usage: ").replace(" [-h]", "")
        lines += [f"{level} kbroker {name}", "", words(parser.description or ""), "", f"    {usage}", ""]
        rows = []
        for action in parser._actions:
            if shared & set(action.option_strings) or action.help in (None, argparse.SUPPRESS):
                continue
            shown = ", ".join(f"`{option}`" for option in action.option_strings)
            value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
            if action.nargs != 0 and value:
                shown = f"{shown} `{value}`".strip().replace("|", "\\|")
            rows.append(f"| {shown} | {words(action.help)} |")
        if rows:
            lines += ["| | |", "| --- | --- |", *rows, ""]
        if parser.epilog:
            lines += [words(parser.epilog), ""]
        lines += ["```sh", *examples_of(parser.prog), "```", ""]
    return "\n".join(lines)


def kips() -> str:
    """The page of the KIPs with the state of each, from docs/kips/."""
    from docs.kip_table import page

    return "\n".join(["# KIPs", "", NOTE.replace("from the code", "from docs/kips/"), page()])


def where() -> str:
    """Questions and their files, from where_is.toml; then every module with the first sentence of its docstring."""
    package = DOCS.parent / "kbroker"
    lines = [
        "# Where is ...?",
        "",
        "<!-- Made by docs/generate.py from docs/where_is.toml and the modules' docstrings: run `make docs`. -->",
        "",
    ]
    for subject, questions in tomllib.loads((DOCS / "where_is.toml").read_text("utf-8")).items():
        lines += [f"## {subject}", "", "| question | answer |", "| --- | --- |"]
        lines += [f"| {question} | {answer} |" for question, answer in questions.items()]
        lines.append("")
    lines += [
        "## All modules",
        "",
        "Each with the first sentence of its docstring; those that declare one API's messages, and packages without a",
        "docstring, aside.",
        "",
    ]
    folders = sorted({path.parent for path in package.rglob("*.py")} - {package / "wire" / "messages"})
    for folder in folders:
        lines += [f"### {folder.relative_to(package.parent)}", "", "| module | |", "| --- | --- |"]
        for path in sorted(folder.glob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
            if text is not None:
                lines.append(f"| `{path.name}` | {_first_sentence(text)} |")
        lines.append("")
    return "\n".join(lines)


def works_with() -> str:
    """The page of programs around Kafka, from the folders of their tests."""
    from docs.works_with_page import page

    return page(NOTE.replace("the code", "compat_tests/works_with/"))


def dashboard() -> str:
    """The dashboard for Grafana."""
    from docs.dashboard import render

    return render()


def terminal(name: str) -> Callable[[], str]:
    """A picture of the site's front page."""
    from docs.front_pictures import picture

    return lambda: picture(name)


def _first_sentence(text: str) -> str:
    """Of a docstring, as it stands in a cell of a table."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.sub(r":[a-z]+:`~?([^`]+)`", r"`\1`", paragraph.split(". ")[0].rstrip(":."))
    sentence = sentence.replace("``", "`").replace("|", "\\|")
    return sentence if sentence.endswith("?") else f"{sentence}."


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "apis.md": apis,
    "metrics.md": metrics,
    "top.md": top,
    "doctor.md": doctor,
    "../monitoring/grafana/dashboards/kbroker.json": dashboard,
    "commands.md": commands,
    "kips.md": kips,
    "works_with.md": works_with,
    "security/permissions.md": permissions,
    "architecture/where.md": where,
    "static/front/test.svg": terminal("test"),
    "static/front/run.svg": terminal("run"),
}


def main() -> int:
    """Write what has changed."""
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
