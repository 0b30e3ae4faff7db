"""The page of properties, from their definitions."""

from __future__ import annotations

from kbroker.config import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIG_SYNONYMS, TOPIC_CONFIGS, ConfigDef, ConfigKey
from kbroker.config.absent import ABSENT_BROKER_CONFIGS, ABSENT_GROUP_CONFIGS, REFUSED
from kbroker.config.broker import OWN_CONFIGS
from kbroker.config.client_metrics import CLIENT_METRICS_CONFIGS
from kbroker.config.config_key import REQUIRED
from kbroker.config.run_time_only import DYNAMIC_BROKER_CONFIGS


def page(note: str) -> str:
    """The page, in Markdown; ``note`` says that it is generated."""
    lines = [
        "# Configuration",
        "",
        note,
        "Names, types, defaults and limits are those of Apache Kafka 4.4. A node describes all of Kafka's properties,",
        "those of what kbroker does not have included. One that is not listed here is kept, reported when the node",
        "starts, and has no effect.",
        "",
        "## Node",
        "",
        "In `server.properties`, or `-o name=value` on the command line.",
        "",
        *_table(BROKER_CONFIGS, modes=True),
        "",
        "## Node, of kbroker alone",
        "",
        "Apache Kafka does not have these. They are read at the start, and DescribeConfigs does not show them.",
        "",
        *_table(OWN_CONFIGS),
        "",
        "## Node, of what kbroker does not have",
        "",
        "A node describes these with Kafka's defaults, and nothing of the kind is in force. If one has another value",
        "in `server.properties`, the node warns and goes on without it, or does not start: the last column says which.",
        "Listeners of TLS and SASL are refused in any case. While the node runs, another value is refused, for one",
        "listener (`listener.name.<listener>.<property>`) as well.",
        "",
        *_absent_table(ABSENT_BROKER_CONFIGS),
        "",
        "## Node, at run time only",
        "",
        "Set with `kbroker config` or `kafka-configs`, for one node or for all of them.",
        "",
        *_table(DYNAMIC_BROKER_CONFIGS, modes=True),
        "",
        "## Topic",
        "",
        *_table(TOPIC_CONFIGS, synonyms=True),
        "",
        "## Group",
        "",
        *_table(GROUP_CONFIGS),
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
        *_table(CLIENT_METRICS_CONFIGS),
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
    return "\n".join(lines)


def _table(definition: ConfigDef, *, modes: bool = False, synonyms: bool = False) -> list[str]:
    head = ["Property", "Type", "Default", "Valid"]
    head += ["Update mode"] if modes else []
    head += ["Default from"] if synonyms else []
    lines = [f"| {' | '.join([*head, 'Meaning'])} |", "|" + " --- |" * (len(head) + 1)]
    for key in definition.values():
        if key.internal:
            continue
        cells = _shown(key)
        if modes:
            cells.append(key.update_mode.value)
        if synonyms:
            cells.append(", ".join(f"`{name}`" for name, _ in TOPIC_CONFIG_SYNONYMS.get(key.name, ())))
        meaning = key.doc + (f" **No effect: {key.no_effect}.**" if key.no_effect else "")
        lines.append(f"| {' | '.join([*cells, meaning])} |")
    return lines


def _absent_table(definition: ConfigDef) -> list[str]:
    lines = ["| Property | Type | Default | Valid | Meaning | Why not | Another value |", "|" + " --- |" * 7]
    for key in definition.values():
        if not key.internal:
            then = "the node does not start" if key.name in REFUSED else "a warning"
            lines.append(f"| {' | '.join([*_shown(key), key.doc, key.no_effect, then])} |")
    return lines


def _shown(key: ConfigKey) -> list[str]:
    default = "required" if key.default == REQUIRED else "null" if key.default is None else f"`{key.default}`"
    valid = str(key.validator or "").replace("|", "\\|")
    return [
        f"`{key.name}`",
        key.type.name.lower(),
        default if default != "``" else "empty",
        f"`{valid}`" if valid else "",
    ]
