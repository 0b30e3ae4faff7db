"""The holders of each record of a share group, by ``kbroker group describe --in-flight``, on one node and on three."""

from __future__ import annotations

import json

import pytest

from compat_tests.brokers import Broker
from compat_tests.share_groups.conftest import LOCK_MS
from compat_tests.share_groups.members import Delivery, ShareMembers
from compat_tests.share_groups.steps import make
from kbroker.tools.cli import main
from kbroker.tools.cli.share_group import UNTOLD
from tests.patience import eventually


@pytest.mark.parametrize("members", ["confluent-kafka"], indirect=True)
def test_the_command_tells_who_holds_which_record(
    broker: Broker, members: ShareMembers, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each leader is asked what is in flight; a broker of Apache Kafka is said to tell nothing."""
    other = f"{name}-other"
    make(broker, name, *"abcd")
    make(broker, other, *"ef")
    held = {"one": take(members, "one", name, name), "two": take(members, "two", name, other)}
    released = held["one"].pop(1)
    members.acknowledge("one", [released], "RELEASE")
    assert not any(members.commit("one").values())
    held["three"] = take(members, "three", name, name)
    assert [each[:3] for each in held["three"]] == [released[:3]]

    def told(*more: str) -> str:
        assert main(["group", "describe", name, "--in-flight", "-b", broker.bootstrap, *more]) == 0
        return capsys.readouterr().out

    rows = json.loads(told("--json"))[0]["partitions"]
    assert [(row["topic"], row["partition"]) for row in rows] == [(name, 0), (other, 0)]
    if broker.name == "apache":
        assert all(row["in_flight"] is None and row["in_flight_problem"] == UNTOLD for row in rows)
        assert f"{name}-0, {other}-0: {UNTOLD}" in told()
        return
    holders = {
        (row["topic"], 0, offset): (each["state"], each["client_id"], each["delivery_count"])
        for row in rows
        for each in row["in_flight"]
        for offset in range(each["first_offset"], each["last_offset"] + 1)
    }
    for member, deliveries in held.items():
        for each in deliveries:
            assert holders[each[:3]] == ("acquired", member, each.delivery_count)
    assert holders[released[:3]] == ("acquired", "three", 2)
    locks = [each["lock_ms_left"] for row in rows for each in row["in_flight"] if each["state"] == "acquired"]
    assert all(0 <= lock <= LOCK_MS for lock in locks)
    shown = told()
    assert "lock ends in" in shown and all(f"{member} (" in shown for member in held)


def take(members: ShareMembers, member: str, group: str, topic: str) -> list[Delivery]:
    """The first records of a new member, which it holds."""
    members.join(member, group, topic)
    return eventually(lambda: members.poll(member, 500), f"{member} gets something")
