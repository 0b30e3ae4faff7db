"""Who holds which record of a share group, by ``kbroker group describe --in-flight``, on one node and on three."""

from __future__ import annotations

import json
import time

import pytest

from compat_tests.brokers import Broker
from compat_tests.share_groups.members import Delivery, ShareMembers
from compat_tests.share_groups.steps import SECONDS, accept, make, read, write
from kbroker.cli import main
from kbroker.cli.share_group import UNTOLD


@pytest.mark.parametrize("members", ["confluent-kafka"], indirect=True)
def test_the_command_tells_who_holds_which_record(
    broker: Broker, members: ShareMembers, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each leader is asked what is in flight; a broker of Apache Kafka is said to tell nothing."""
    make(broker, name, *map(str, range(9)), partitions=3)
    held = {"one": take(members, "one", name)}
    write(broker, name, *map(str, range(9, 18)), partitions=3)
    held["two"] = take(members, "two", name)
    released = held["one"].pop(0)
    members.acknowledge("one", [released], "RELEASE")
    assert not any(members.commit("one").values())
    members.join("three", name, name)
    held["three"] = read(members, "three", 1)
    while not any(each[:3] == released[:3] for each in held["three"]):
        accept(members, "three", held["three"])
        held["three"] = read(members, "three", 1)

    def told(*more: str) -> str:
        assert main(["group", "describe", name, "--in-flight", "-b", broker.bootstrap, *more]) == 0
        return capsys.readouterr().out

    rows = json.loads(told("--json"))[0]["partitions"]
    assert [row["partition"] for row in rows] == [0, 1, 2]
    if broker.name == "apache":
        assert all(row["in_flight"] is None and row["in_flight_problem"] == UNTOLD for row in rows)
        assert f"{name}-0, {name}-1, {name}-2: {UNTOLD}" in told()
        return
    holders = {
        (row["partition"], offset): (each["state"], each["client_id"], each["delivery_count"])
        for row in rows
        for each in row["in_flight"]
        for offset in range(each["first_offset"], each["last_offset"] + 1)
    }
    for member, deliveries in held.items():
        for each in deliveries:
            assert holders[each.partition, each.offset] == ("acquired", member, each.delivery_count)
    assert holders[released.partition, released.offset] == ("acquired", "three", 2)
    locks = [each["lock_ms_left"] for row in rows for each in row["in_flight"] if each["state"] == "acquired"]
    assert all(0 <= lock <= 30_000 for lock in locks)
    shown = told()
    assert "lock ends in" in shown and all(f"{member} (" in shown for member in held)


def take(members: ShareMembers, member: str, name: str) -> list[Delivery]:
    """A new member, and what it holds after its first records; it may hold more that it has not been given."""
    members.join(member, name, name)
    end = time.monotonic() + SECONDS
    while not (got := members.poll(member, 500)):
        assert time.monotonic() < end, f"{member} gets nothing"
    return got
