"""Writes the pages of docs/ that are made from the code: ``make docs``. A test fails when they are out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parent
NOTE = "<!-- Made by docs/generate.py from the code: change that and run `make docs`. -->\n"


def configuration() -> str:
    """Every property, by scope."""
    from kbroker.config import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIG_SYNONYMS, TOPIC_CONFIGS, ConfigDef
    from kbroker.config.definition import REQUIRED
    from kbroker.config.dynamic import DYNAMIC_BROKER_CONFIGS

    def table(definition: ConfigDef, *, modes: bool = False, synonyms: bool = False) -> list[str]:
        head = ["Property", "Type", "Default", "Valid"]
        head += ["Update mode"] if modes else []
        head += ["Default from"] if synonyms else []
        lines = [f"| {' | '.join([*head, 'Meaning'])} |", "|" + " --- |" * (len(head) + 1)]
        for key in definition.values():
            if key.internal:
                continue
            default = "required" if key.default == REQUIRED else "null" if key.default is None else f"`{key.default}`"
            cells = [f"`{key.name}`", key.type.name.lower(), default if default != "``" else "empty"]
            valid = str(key.validator or "").replace("|", "\\|")
            cells.append(f"`{valid}`" if valid else "")
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
        "Names, types, defaults and limits are those of Apache Kafka 4.3. A property of Kafka's that is not listed",
        "here is kept, reported when the node starts, and has no effect; those whose absence would be dangerous (an",
        "authorizer, TLS, SASL, tiered storage) are refused.",
        "",
        "## Node",
        "",
        "In `server.properties`, or `-o name=value` on the command line.",
        "",
        *table(BROKER_CONFIGS, modes=True),
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
    ]
    return "\n".join(parts)


def apis() -> str:
    """What is served, from the handlers' registrations."""
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
        "What is not in this table is not advertised either. The versions that exist are those of Apache Kafka 4.3.",
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


def commands() -> str:
    """Every command with its options, from the parsers."""
    from kbroker.cli import COMMANDS
    from kbroker.cli.common import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
    from kbroker.cli.parser import all_parsers

    shared = {"--help", "--bootstrap-server", "--timeout"}

    def words(text: str) -> str:
        return text.replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")

    lines = [
        "# Commands",
        "",
        NOTE,
        "`kbroker COMMAND --help` says the same. `topic`, `produce`, `consume`, `group`, `config`, `cluster` talk to",
        f"any Kafka cluster: to `-b HOST:PORT[,...]`, or `${BOOTSTRAP_VARIABLE}`, or {DEFAULT_BOOTSTRAP}. They try",
        "again what may pass (a leader that moves, a coordinator that loads) for `--timeout` seconds, 30 by default.",
        "Connections are plaintext, without authentication.",
        "",
        "- Tables are for people. `--json` writes one JSON document (`consume`: an object a line) and nothing else to",
        "  standard output; its names stay as they are, others may be added.",
        "- Exit code 0: done. 1: not done, or not all of it; standard error has a line for each problem. 2: wrong",
        "  usage.",
        "- Times without a zone are in UTC, in what is read and in what is shown.",
        "- Without a terminal there are no colours and no progress bar, and lines are as long as they need to be. What",
        "  deletes something asks first, or wants `--yes`.",
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
            if shared & set(action.option_strings) or action.help is None:
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


PAGES: dict[str, Callable[[], str]] = {"configuration.md": configuration, "apis.md": apis, "commands.md": commands}


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
