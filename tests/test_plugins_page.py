"""Each block of docs/plugins.md and docs/security/config_providers.md is run, as the pages name it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kbroker.config.properties_file import parse_properties
from kbroker.config.providers import looked_up
from kbroker.rules import (
    ConfigChanges,
    ConsumerGroup,
    ConsumerMember,
    ConsumerTopic,
    NewTopic,
    PolicyViolation,
    StreamsGroup,
    StreamsMember,
    Subtopology,
    TopologyDescription,
)
from kbroker.rules.assignors import checked_partitions, checked_tasks
from kbroker.rules.loading import load
from tests.node.node_harness import configuration

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "plugins.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
PROPERTIES = [parse_properties(text) for language, text in BLOCKS if language == "properties"]
NOTHING: frozenset[Any] = frozenset()


def plugin(name: str, path: Path, method: str) -> Any:
    """A definition of the page, loaded as a node does it."""
    (text,) = (
        text
        for text in PYTHON
        if re.search(rf"^(def {name}\b|{name} = )", text, re.MULTILINE) and "running" not in text
    )
    file = path / f"{name}.py"
    file.write_text(text)
    return load("a.property", f"python:{file}:{name}", method)


def test_the_properties_are_those_of_a_node(tmp_path: Path) -> None:
    assert len(PROPERTIES) == 5
    for properties in PROPERTIES:
        assert configuration(tmp_path).with_properties(properties).unknown == ()
        assert all("python:my_plugins:" in value for value in properties.values())


def test_the_assignor_of_tasks(tmp_path: Path) -> None:
    def member(zone: str) -> StreamsMember:
        return StreamsMember("p", None, None, {"zone": zone}, NOTHING, NOTHING, NOTHING, {}, {})

    group = StreamsGroup(
        {"a": member("1"), "b": member("1"), "c": member("2")},
        {"0": Subtopology(4, True, ("in",)), "1": Subtopology(1, False, ("in",))},
        1,
        (),
    )
    checked = checked_tasks(group, plugin("by_zone", tmp_path, "assign")(group))
    assert {name: len(list(tasks.active)) for name, tasks in checked.items()} == {"a": 2, "b": 2, "c": 1}
    assert sum(len(list(tasks.standby)) for tasks in checked.values()) == 4
    zones = {"a": "1", "b": "1", "c": "2"}
    for name, tasks in checked.items():
        for task in tasks.standby:
            (owner,) = (other for other, its in checked.items() if task in its.active)
            assert zones[owner] != zones[name]


def test_the_assignor_of_partitions(tmp_path: Path) -> None:
    group = ConsumerGroup(
        {"a": ConsumerMember(None, None, {"t", "u"}, NOTHING), "b": ConsumerMember(None, None, {"u"}, NOTHING)},
        {"t": ConsumerTopic((0, 1), ()), "u": ConsumerTopic((0, 1), ())},
    )
    checked = checked_partitions(group, plugin("by_topic", tmp_path, "assign")(group))
    assert {name: {each.topic for each in partitions} for name, partitions in checked.items()} == {
        "a": {"t"},
        "b": {"u"},
    }


def test_the_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keeper = plugin("descriptions", tmp_path, "store")
    keeper.store("g", 0, TopologyDescription((), ()))
    assert keeper.get("g", 0) == TopologyDescription((), ()) and len(list((tmp_path / "descriptions").iterdir())) == 1


def test_the_policies(tmp_path: Path) -> None:
    naming = plugin("naming", tmp_path, "validate")
    naming(NewTopic("a.b", 1, 3, None, {}))
    naming(NewTopic("__consumer_offsets", None, None, {0: (1, 2)}, {}))
    for topic in (NewTopic("ab", 1, 3, None, {}), NewTopic("a.b", 1, 1, None, {})):
        with pytest.raises(PolicyViolation):
            naming(topic)
    retention = plugin("retention", tmp_path, "validate")
    retention(ConfigChanges("BROKER", "", {"retention.ms": "-1"}))
    with pytest.raises(PolicyViolation, match="nothing is kept for ever"):
        retention(ConfigChanges("TOPIC", "t", {"retention.ms": "-1"}))


def test_the_broker_of_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    exec(PYTHON[-1], {})
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)


def test_the_example_of_config_providers(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```properties\n(.*?)^```$",
        (DOCS / "security" / "config_providers.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    (tmp_path / "kafka.properties").write_text("keystore=changeit\n")
    properties = parse_properties(block.replace("/run/secrets", str(tmp_path)))
    found = looked_up(properties, {"KAFKA_KEY_PASSWORD": "secret"})
    assert found["listener.name.sasl_ssl.ssl.keystore.password"] == "changeit"
    assert found["listener.name.sasl_ssl.ssl.key.password"] == "secret"
