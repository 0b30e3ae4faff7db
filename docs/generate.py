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


PAGES: dict[str, Callable[[], str]] = {"configuration.md": configuration, "apis.md": apis}


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
