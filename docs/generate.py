"""Writes the pages of docs/ that are made from the code: ``make docs``. A test fails when they are out of date."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parent
NOTE = "<!-- Made by docs/generate.py from the code: change that and run `make docs`. -->\n"


def configuration() -> str:
    """Every property, by scope."""
    from kbroker.config import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIG_SYNONYMS, TOPIC_CONFIGS, ConfigDef, ConfigKey
    from kbroker.config.absent import ABSENT_BROKER_CONFIGS, REFUSED
    from kbroker.config.absent.groups import ABSENT_GROUP_CONFIGS
    from kbroker.config.client_metrics import CLIENT_METRICS_CONFIGS
    from kbroker.config.definition import REQUIRED
    from kbroker.config.dynamic import DYNAMIC_BROKER_CONFIGS

    def shown(key: ConfigKey) -> list[str]:
        default = "required" if key.default == REQUIRED else "null" if key.default is None else f"`{key.default}`"
        valid = str(key.validator or "").replace("|", "\\|")
        return [
            f"`{key.name}`",
            key.type.name.lower(),
            default if default != "``" else "empty",
            f"`{valid}`" if valid else "",
        ]

    def absent_table(definition: ConfigDef) -> list[str]:
        lines = ["| Property | Type | Default | Valid | Meaning | Why not | Another value |", "|" + " --- |" * 7]
        for key in definition.values():
            if not key.internal:
                then = "the node does not start" if key.name in REFUSED else "a warning"
                lines.append(f"| {' | '.join([*shown(key), key.doc, key.no_effect, then])} |")
        return lines

    def table(definition: ConfigDef, *, modes: bool = False, synonyms: bool = False) -> list[str]:
        head = ["Property", "Type", "Default", "Valid"]
        head += ["Update mode"] if modes else []
        head += ["Default from"] if synonyms else []
        lines = [f"| {' | '.join([*head, 'Meaning'])} |", "|" + " --- |" * (len(head) + 1)]
        for key in definition.values():
            if key.internal:
                continue
            cells = shown(key)
            if modes:
                cells.append(key.update_mode.value)
            if synonyms:
                cells.append(", ".join(f"`{name}`" for name, _ in TOPIC_CONFIG_SYNONYMS.get(key.name, ())))
            meaning = key.doc + (f" **No effect: {key.no_effect}.**" if key.no_effect else "")
            lines.append(f"| {' | '.join([*cells, meaning])} |")
        return lines

    parts = [
        "# Configuration",
        "",
        NOTE,
        "Names, types, defaults and limits are those of Apache Kafka 4.4. A node describes all of Kafka's properties,",
        "those of what kbroker does not have included. One that is not listed here is kept, reported when the node",
        "starts, and has no effect.",
        "",
        "## Node",
        "",
        "In `server.properties`, or `-o name=value` on the command line.",
        "",
        *table(BROKER_CONFIGS, modes=True),
        "",
        "## Node, of what kbroker does not have",
        "",
        "A node describes these with Kafka's defaults, and nothing of the kind is in force. If one has another value",
        "in `server.properties`, the node warns and goes on without it, or does not start: the last column says which.",
        "Listeners of TLS and SASL are refused in any case. While the node runs, another value is refused, for one",
        "listener (`listener.name.<listener>.<property>`) as well.",
        "",
        *absent_table(ABSENT_BROKER_CONFIGS),
        "",
        "## Node, at run time only",
        "",
        "Set with `kbroker config` or `kafka-configs`, for one node or for all of them.",
        "",
        *table(DYNAMIC_BROKER_CONFIGS, modes=True),
        "",
        "## Topic",
        "",
        *table(TOPIC_CONFIGS, synonyms=True),
        "",
        "## Group",
        "",
        *table(GROUP_CONFIGS),
        "",
        "Other properties of groups are described with Kafka's defaults, and refused when they are set:",
        f"{', '.join(f'`{name}`' for name in ABSENT_GROUP_CONFIGS)}.",
        "",
        "## Subscription to clients' metrics",
        "",
        "Set with `kbroker config`, `kafka-configs` or `kafka-client-metrics`, for a subscription by its name",
        "(KIP-714). Clients are asked by nodes whose `metric.reporters` has a receiver: see [telemetry](telemetry.md).",
        "As in Apache Kafka, a node without one only keeps and describes the subscription.",
        "",
        *table(CLIENT_METRICS_CONFIGS),
        "",
        "## Loggers of a node",
        "",
        "The levels of a node's loggers change for as long as it runs: `kbroker config describe broker-logger 1` and",
        "`kbroker config set broker-logger 1 kbroker.node=DEBUG`, or `kafka-configs --entity-type broker-loggers`. A",
        "logger has the name of its Python module; a package has one for all its modules, and `root` stands above all.",
        "A module is loaded with the first request that needs it, and its logger is there from then on. The levels are",
        "TRACE (which shows what DEBUG shows), DEBUG, INFO, WARN, ERROR and FATAL.",
        "",
    ]
    return "\n".join(parts)


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
    served = broker | controller

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
    return "\n".join([*lines, ""])


def permissions() -> str:
    """The page of the operations that APIs ask for, from the table of ``handlers.permissions``."""
    from kbroker.handlers.permissions import ON_CONTROLLER, PERMISSIONS, Permission, Shown
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
    from kbroker.cli import COMMANDS
    from kbroker.cli.common import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
    from kbroker.cli.parser import all_parsers

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
        "  `verify-log`, saved exchanges of `decode`) an object a line. Names stay as they are, others may be added.",
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
