"""kbroker config, against a broker."""

from __future__ import annotations

import pytest

from tests.cli_command import Run


def test_topics(kb: Run) -> None:
    kb("topic", "create", "conf")
    found = kb("config", "describe", "topic", "conf")
    assert found.out == "" and "nothing is set for topic conf; --all shows the defaults" in found.err
    assert kb("config", "set", "topic", "conf", "retention.ms=5000", "cleanup.policy+=compact").out.splitlines() == [
        "topic conf: retention.ms set to 5000",
        "topic conf: cleanup.policy extended by compact",
    ]
    assert kb("config", "describe", "topic", "conf").rows == [
        ["config", "value", "source"],
        ["cleanup.policy", "delete,compact", "topic"],
        ["retention.ms", "5000", "topic"],
    ]
    kb("config", "set", "topic", "conf", "cleanup.policy-=delete")
    [entry] = kb("config", "describe", "topic", "conf", "cleanup.policy", "--json").json
    assert entry["value"] == "compact" and entry["source"] == "DYNAMIC_TOPIC_CONFIG" and entry["type"] == "list"
    assert entry["synonyms"][-1] == {
        "name": "log.cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG"
    }  # fmt: skip
    assert entry["documentation"]
    assert kb("config", "unset", "topic", "conf", "cleanup.policy", "retention.ms").out.splitlines() == [
        "topic conf: cleanup.policy unset",
        "topic conf: retention.ms unset",
    ]
    assert kb("config", "describe", "topic", "conf", "--json").json == []


def test_what_was_not_set_is_told_and_is_no_failure(kb: Run) -> None:
    kb("topic", "create", "bare", "-c", "retention.ms=5000")
    found = kb("config", "unset", "topic", "bare", "nonsense", "segment.ms", "retention.ms", "--dry-run")
    assert found.out == "topic bare: retention.ms could be unset\n"
    found = kb("config", "unset", "topic", "bare", "nonsense", "segment.ms", "retention.ms")
    assert found.out == "topic bare: retention.ms unset\n"
    assert found.err.splitlines() == [
        "kbroker: topic bare has no config nonsense: there was nothing to unset",
        "kbroker: segment.ms was not set for topic bare",
    ]
    for name in ("1", "default"):
        found = kb("config", "unset", "broker", name, "log.retention.ms")
        assert (found.out, found.err) == ("", f"kbroker: log.retention.ms was not set for broker {name}\n")
    # What is set for all brokers is not set for one.
    kb("config", "set", "broker", "default", "log.retention.ms=99999")
    assert kb("config", "unset", "broker", "1", "log.retention.ms").out == ""
    found = kb("config", "unset", "broker", "default", "log.retention.ms")
    assert (found.out, found.err) == ("broker default: log.retention.ms unset\n", "")
    assert "group g has no config nonsense" in kb("config", "unset", "group", "g", "nonsense").err
    assert "there is no such topic" in kb("config", "unset", "topic", "nowhere", "retention.ms", code=1).err


def test_all_and_documentation(kb: Run) -> None:
    kb("topic", "create", "docs")
    names = [row[0] for row in kb("config", "describe", "topic", "docs", "--all").rows]
    assert len(names) > 25 and {"retention.ms", "segment.bytes", "min.insync.replicas"} <= set(names)
    found = kb("config", "describe", "topic", "docs", "retention.ms", "--docs").out
    assert found.splitlines()[0].split() == ["config", "value", "source", "meaning"] and "milliseconds" in found


def test_brokers(kb: Run) -> None:
    rows = {row[0]: row[1:] for row in kb("config", "describe", "broker", "1").rows}
    assert rows["log.dirs"][-1] == "file" and "compression.type" not in rows
    kb("config", "set", "broker", "default", "log.retention.ms=99999")
    assert ["log.retention.ms", "99999", "all", "brokers"] in kb("config", "describe", "broker", "default").rows
    kb("config", "set", "broker", "1", "log.retention.ms=88888")
    assert ["log.retention.ms", "88888", "broker"] in kb("config", "describe", "broker", "1").rows
    kb("topic", "create", "from-broker")
    assert kb("config", "describe", "topic", "from-broker", "retention.ms").rows[1] == [
        "retention.ms", "88888", "broker:", "log.retention.ms"
    ]  # fmt: skip
    kb("config", "unset", "broker", "1", "log.retention.ms")
    kb("config", "unset", "broker", "default", "log.retention.ms")


def test_a_secret_is_set_and_not_shown(kb: Run) -> None:
    name = "listener.name.clients.ssl.keystore.password"
    found = kb("config", "set", "broker", "1", f"{name}=hunter2")
    assert (found.out, found.err) == (f"broker 1: {name} set, and not shown\n", "")
    [change] = kb("config", "set", "broker", "1", f"{name}=hunter3", "--json").json["changes"]
    assert change == {"name": name, "operation": "set", "value": None}
    kb("config", "unset", "broker", "1", name)


def test_groups(kb: Run) -> None:
    kb("config", "set", "group", "g", "consumer.session.timeout.ms=46000")
    assert kb("config", "describe", "group", "g").rows[1:] == [["consumer.session.timeout.ms", "46000", "group"]]
    assert ["consumer.heartbeat.interval.ms", "5000", "default"] in kb("config", "describe", "group", "g", "-a").rows


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["set", "topic", "c", "x=1"], "topic c: Unknown topic config name: x (INVALID_CONFIG)"),
        (["set", "topic", "c", "retention.mss=1"], "(INVALID_CONFIG): did you mean retention.ms?"),
        (["set", "topic", "c", "retention.ms=x"], "INVALID_CONFIG"),
        (["set", "topic", "nowhere", "retention.ms=1"], "topic nowhere: there is no such topic"),
        (["describe", "topic", "nowhere"], "topic nowhere: there is no such topic"),
        (["describe", "topic", "c", "x"], "topic c has no config x"),
        (["describe", "broker", "9"], "there is no broker 9 in the cluster"),
        (["set", "broker", "1", "node.id=7"], "INVALID_REQUEST"),
    ],
)
def test_what_cannot_be(kb: Run, words: list[str], problem: str) -> None:
    kb("topic", "create", "c", "--if-not-exists")
    found = kb("config", *words, code=1)
    assert problem in found.err and found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("retention.ms", "1d", "86400000"),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", "64MiB", "67108864"),
        ("segment.bytes", "32 MiB", "33554432"),
        ("segment.bytes", "1.5MB", "1500000"),
        ("max.message.bytes", "2000K", "2000000"),
        ("cleanup.policy", "compact", "compact"),
    ],
)
def test_values_have_units(kb: Run, name: str, given: str, stored: str) -> None:
    kb("topic", "create", "units", "--if-not-exists")
    kb("config", "set", "topic", "units", f"{name}={given}")
    assert kb("config", "describe", "topic", "units", name, "--json").json[0]["value"] == stored
    kb("topic", "create", f"units-{name}-{stored}", "-c", f"{name}={given}")
    assert kb("config", "describe", "topic", f"units-{name}-{stored}", name, "--json").json[0]["value"] == stored


def test_a_dry_run_sets_nothing(kb: Run) -> None:
    kb("topic", "create", "dry")
    assert kb("config", "set", "topic", "dry", "retention.ms=1", "--dry-run").out == (
        "topic dry: retention.ms could be set to 1\n"
    )
    assert kb("config", "set", "topic", "dry", "retention.ms=1", "--dry-run", "--json").json["altered"] is False
    assert kb("config", "describe", "topic", "dry", "--json").json == []


def test_loggers(kb: Run) -> None:
    shown = kb("config", "describe", "broker-logger", "1", "kbroker.node", "root")
    assert shown.rows[1:] == [["kbroker.node", "WARN", "logger"], ["root", "WARN", "logger"]]
    assert kb("config", "set", "broker-logger", "1", "kbroker.node=ERROR").out == (
        "broker-logger 1: kbroker.node set to ERROR\n"
    )
    [entry] = kb("config", "describe", "broker-logger", "1", "kbroker.node.controller.metadata_plane", "--json").json
    assert (entry["value"], entry["source"]) == ("ERROR", "DYNAMIC_BROKER_LOGGER_CONFIG")
    kb("config", "unset", "broker-logger", "1", "kbroker.node")
    [entry] = kb("config", "describe", "broker-logger", "1", "kbroker.node.controller.metadata_plane", "--json").json
    assert entry["value"] == "WARN"
    refused = kb("config", "set", "broker-logger", "1", "kbroker.node=LOUD", code=1)
    assert "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN" in refused.err


def test_subscriptions_to_clients_metrics(kb: Run) -> None:
    assert kb("config", "set", "client-metrics", "m", "metrics=org.apache.", "interval.ms=1000").out.splitlines() == [
        "client-metrics m: metrics set to org.apache.",
        "client-metrics m: interval.ms set to 1000",
    ]
    assert kb("config", "describe", "client-metrics", "m", "interval.ms", "match").rows[1:] == [
        ["interval.ms", "1000", "client", "metrics"],
        ["match", "default"],
    ]
    assert "interval must be between 100 and" in kb("config", "set", "client-metrics", "m", "interval.ms=1", code=1).err
