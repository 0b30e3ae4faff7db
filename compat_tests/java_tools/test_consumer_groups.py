"""kafka-consumer-groups and kafka-groups: list, describe, reset offsets in each way, delete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison, Side

TOOL = "kafka-consumer-groups"

LINES = "\n".join(f"key-{n}:value {n}" for n in range(10))
"""Five records: with the default partitioner, these keys fill the partitions of a topic in a known way."""


@pytest.fixture(scope="module")
def topics(sides: tuple[Side, Side]) -> None:
    """The topics that the groups of this module read."""
    compare = Comparison(*sides, ())
    for name, partitions in (("groups-many", 3), ("groups-one", 1)):
        compare.topic(name, partitions)
        compare.produce(name, LINES, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    assert compare.finish() == ""
    compare.close()


@pytest.fixture(scope="module")
def members(sides: tuple[Side, Side], topics: None) -> Iterator[None]:
    """A group for each protocol with members, a static one among them, and a group without members."""

    def join(side: Side) -> None:
        for protocol in ("classic", "consumer"):
            group = f"active-{protocol}"
            configs = {"group.protocol": protocol}
            if protocol == "classic":
                configs["heartbeat.interval.ms"] = "200"
            first = {**configs, "client.id": "first", "group.instance.id": "static"}
            side.tools.join(group, first, ["groups-many"], commit=1)
            side.tools.join(group, {**configs, "client.id": "second"}, ["groups-one"], commit=4)

    compare = Comparison(*sides, ())
    compare.both(join)
    for protocol in ("classic", "consumer"):  # the first hears of the second with its next heartbeat
        compare.server_until("Stable", TOOL, "--describe", "--group", f"active-{protocol}", "--state", quiet=True)
    reset = ("--reset-offsets", "--to-offset", "1", "--topic", "groups-one", "--execute")
    compare.server(TOOL, "--group", "active-none", *reset, quiet=True)
    yield
    compare.both(lambda side: side.tools.leave())
    compare.close()


def seed(compare: Comparison, group: str, offset: int = 1) -> None:
    """A group without members that has `offset` committed for each partition of groups-many."""
    topic = ("--topic", "groups-many")
    compare.server(
        TOOL, "--group", group, "--reset-offsets", "--to-offset", str(offset), *topic, "--execute", quiet=True
    )


@feature("kafka-consumer-groups --list")
def test_list(compare: Comparison, members: None) -> None:
    def show(*options: str, exit: int = 0) -> None:
        # Which states and types there are comes in no order.
        aside = ((r"Valid (\w+) are: .*", r"Valid \1 are: SOME"),)
        compare.server(TOOL, "--list", *options, exit=exit, ordered=False, aside=aside)

    show()
    show("--state")
    show("--state", "Stable")
    show("--state", "empty,stable")
    show("--type")
    show("--type", "classic")
    show("--type", "Consumer")
    show("--state", "--type")
    show("--state", "Stable", "--type", "consumer")
    show("--state", "Nonsense", exit=1)
    show("--type", "Nonsense", exit=1)
    show("--type", "share", exit=1)

    def groups(*options: str, exit: int = 0) -> None:
        compare.server("kafka-groups", "--list", *options, exit=exit, ordered=False)

    groups()
    groups("--group-type", "classic")
    groups("--group-type", "consumer")
    groups("--group-type", "nonsense", exit=1)
    groups("--protocol", "consumer")
    groups("--protocol", "connect")
    groups("--consumer")
    groups("--share")
    groups("--streams")
    groups("--share", "--consumer", exit=1)


@feature("kafka-consumer-groups --describe, with members")
def test_describe_active(compare: Comparison, members: None) -> None:
    for group in ("active-classic", "active-consumer"):
        chosen = ("--describe", "--group", group)
        compare.server_until("Stable", TOOL, *chosen, "--state")
        compare.server(TOOL, *chosen, "--state", "--verbose")
        compare.server(TOOL, *chosen, ordered=False)
        compare.server(TOOL, *chosen, "--offsets", "--verbose", ordered=False)
        compare.server(TOOL, *chosen, "--members", ordered=False)
        compare.server(TOOL, *chosen, "--members", "--verbose", ordered=False)
        # What must not be done to a group that has members.
        compare.server(TOOL, "--delete", "--group", group)
        reset = ("--reset-offsets", "--to-earliest", "--topic", "groups-many")
        compare.server(TOOL, "--group", group, *reset, "--execute", ordered=False)
        compare.server(TOOL, "--group", group, *reset, "--dry-run", ordered=False)
        compare.server(TOOL, "--group", group, "--delete-offsets", "--topic", "groups-many", ordered=False)
        compare.server(TOOL, "--group", group, "--delete-offsets", "--topic", "groups-one:0")


@feature("kafka-consumer-groups --describe, without members")
def test_describe_empty(compare: Comparison, topics: None) -> None:
    seed(compare, "empty-a")
    for view in (("--offsets",), ("--members",), ("--members", "--verbose"), ("--state",), ("--state", "--verbose")):
        compare.server(TOOL, "--describe", "--group", "empty-a", *view, ordered=False)
        compare.server(TOOL, "--describe", "--group", "empty-never", *view)
    seed(compare, "empty-b", 2)
    compare.server(TOOL, "--describe", "--group", "empty-a", "--group", "empty-b", ordered=False)
    compare.server(TOOL, "--describe", "--group", "empty-a", "--group", "empty-b", "--state", ordered=False)
    compare.server(TOOL, "--describe", "--group", "empty-a", "--group", "empty-never", ordered=False)
    # A group whose topic is gone.
    compare.topic("groups-gone", 1, lines=["x"])
    gone = ("--group", "empty-gone")
    compare.server(TOOL, *gone, "--reset-offsets", "--to-latest", "--topic", "groups-gone", "--execute")
    compare.server(TOOL, "--describe", *gone)
    compare.server("kafka-topics", "--delete", "--topic", "groups-gone")
    # Coordinators forget its offsets a moment after the topic is gone.
    compare.server_until(r"\A(?![\s\S]*groups-gone)", TOOL, "--describe", *gone)


@feature("kafka-consumer-groups --describe --all-groups")
def test_describe_all(compare: Comparison, members: None) -> None:
    compare.server_until("(?s)Stable.*Stable", TOOL, "--describe", "--all-groups", "--state", ordered=False)
    compare.server(TOOL, "--describe", "--all-groups", ordered=False)
    compare.server(TOOL, "--describe", "--all-groups", "--members", "--verbose", ordered=False)


@feature("kafka-consumer-groups --reset-offsets")
def test_reset(compare: Comparison, topics: None) -> None:
    seed(compare, "reset-me")

    def reset(*options: str, exit: int = 0) -> None:
        compare.server(TOOL, "--group", "reset-me", "--reset-offsets", *options, exit=exit, ordered=False)

    topic = ("--topic", "groups-many")
    ways = (
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", "2"),
        ("--to-offset", "1000"),
        ("--to-offset", "-1"),
        ("--shift-by", "1"),
        ("--shift-by", "-1"),
        ("--shift-by", "-1000"),
        ("--shift-by", "1000"),
        ("--to-datetime", "2020-01-01T00:00:00.000"),
        ("--to-datetime", "2020-01-01T00:00:00.000+02:00"),
        ("--to-datetime", "2120-01-01T00:00:00.000"),
        ("--by-duration", "P100D"),
        ("--by-duration", "PT0S"),
    )
    for way in ways:
        reset(*way, *topic, "--dry-run")
        reset(*way, *topic, "--execute")
        compare.server(TOOL, "--describe", "--group", "reset-me", ordered=False)
    reset("--to-offset", "1", "--topic", "groups-many:0,2", "--execute")
    reset("--to-offset", "1", "--topic", "groups-many:1", "--topic", "groups-one", "--execute")
    reset("--to-earliest", "--all-topics", "--execute")
    reset("--to-latest", "--all-topics", "--export")
    compare.file("offsets.csv", "groups-many,0,1\ngroups-many,2,3\n")
    reset("--from-file", "{dir}/offsets.csv", "--dry-run")
    reset("--from-file", "{dir}/offsets.csv", "--execute")
    compare.server(TOOL, "--describe", "--group", "reset-me", ordered=False)
    both = ("--group", "reset-me", "--group", "reset-new", "--reset-offsets", *topic)
    compare.server(TOOL, *both, "--to-earliest", "--execute", ordered=False)
    compare.server(TOOL, *both, "--to-earliest", "--export", ordered=False)
    compare.file("groups.csv", "reset-me,groups-many,0,2\nreset-new,groups-many,1,1\n")
    compare.server(TOOL, *both, "--from-file", "{dir}/groups.csv", "--execute", ordered=False)
    compare.server(TOOL, "--describe", "--group", "reset-me", "--group", "reset-new", ordered=False)


@feature("kafka-consumer-groups --reset-offsets, refused")
def test_reset_refused(compare: Comparison, topics: None) -> None:
    seed(compare, "refused")

    def reset(*options: str, exit: int = 0) -> None:
        scenarios = ((r"following scenarios: .*", "following scenarios: SOME"),)
        compare.server(
            TOOL, "--group", "refused", "--reset-offsets", *options, exit=exit, ordered=False, aside=scenarios
        )

    reset("--to-earliest", "--topic", "groups-never", "--dry-run")
    reset("--to-earliest", "--topic", "groups-many:9", "--dry-run")
    reset("--to-earliest", "--topic", "groups-never", "--execute")
    reset("--to-earliest", "--topic", "groups-many:x", "--execute", exit=1)
    reset("--to-earliest", "--execute", exit=1)
    reset("--to-earliest", exit=1)
    reset("--topic", "groups-many", "--execute", exit=1)
    reset("--to-datetime", "yesterday", "--topic", "groups-many", "--execute")
    reset("--by-duration", "long", "--topic", "groups-many", "--execute")
    reset("--from-file", "{dir}/no-such-file.csv", "--execute")


@feature("kafka-consumer-groups --delete, --delete-offsets")
def test_delete(compare: Comparison, topics: None) -> None:
    for group in ("delete-a", "delete-b", "delete-c"):
        seed(compare, group)

    def offsets(*options: str, exit: int = 0) -> None:
        compare.server(TOOL, "--group", "delete-a", "--delete-offsets", *options, exit=exit, ordered=False)

    offsets("--topic", "groups-many:0")
    compare.server(TOOL, "--describe", "--group", "delete-a", ordered=False)
    offsets("--topic", "groups-many:0")
    offsets("--topic", "groups-many")
    offsets("--topic", "groups-many:17")
    offsets("--topic", "groups-never")
    compare.server(TOOL, "--describe", "--group", "delete-a")
    compare.server(TOOL, "--group", "delete-never", "--delete-offsets", "--topic", "groups-many", ordered=False)
    compare.server(TOOL, "--delete", "--group", "delete-b", "--group", "delete-c")
    compare.server(TOOL, "--delete", "--group", "delete-b")
    compare.server(TOOL, "--delete", "--group", "delete-never", "--group", "delete-a", ordered=False)
    compare.server(TOOL, "--delete", exit=1)


@feature("kafka-consumer-groups, wrong usage")
def test_usage(compare: Comparison) -> None:
    compare.server(TOOL, exit=1)
    compare.server(TOOL, "--describe", exit=1)
    compare.server(TOOL, "--validate-regex", "groups-.*")
    compare.server(TOOL, "--validate-regex", "groups-[")
