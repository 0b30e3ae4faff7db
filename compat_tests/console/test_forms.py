"""The forms: a topic as it should be, configs with what they mean, offsets by partition, rules, users, quotas."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker
from compat_tests.console.accessibility import violations
from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, RunningConsole, choose, running_console
from compat_tests.console.world import World
from kbroker.client import Client
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.groups import commit_offsets
from kbroker.testing import running_broker
from kbroker.types import TopicPartition
from tests.patience import eventually

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import expect

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def ruled(broker: Broker) -> Iterator[RunningConsole]:
    """A console beside a broker that keeps rules."""
    if broker.name == "apache":
        pytest.skip("a broker of kbroker is started for this")
    with running_broker(AUTHORIZED) as running, running_console("-b", running.bootstrap_servers, "--writes") as console:
        yield console


def test_a_topic_with_the_right_retention_is_made(open_page: OpenPage, world: World) -> None:
    """A stranger's way: no name of a config is typed."""
    name = f"kept-{world.run[::-1]}"
    page = open_page("#/topics")
    page.get_by_role("button", name="New topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Retention time").fill("3d")
    dialog.get_by_label("Retention size").fill("1GiB")
    dialog.get_by_label("Cleanup policy").select_option("compact,delete")
    dialog.get_by_label("Min. in-sync replicas").fill("1")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    with Client(world.bootstrap) as client:
        found = {each.name: each.value for each in describe_configs(client, ResourceType.TOPIC, name)}
    assert (found["retention.ms"], found["retention.bytes"]) == ("259200000", str(1 << 30))
    assert set((found["cleanup.policy"] or "").split(",")) == {"compact", "delete"}
    page.get_by_role("link", name="Configs").click()
    expect(page.get_by_role("row", name=re.compile(r"retention\.ms 259200000 \(3 d\)"))).to_be_visible()
    page.get_by_role("button", name="Change retention.ms").click()
    expect(dialog).to_contain_text(re.compile("records", re.IGNORECASE))
    expect(dialog).to_contain_text("604800000 (7 d)")  # its default
    expect(dialog).to_contain_text("[-1,...]")
    dialog.get_by_label("Value", exact=True).fill("1 h")
    dialog.get_by_role("button", name="Set").click()
    expect(page.get_by_role("row", name=re.compile(r"retention\.ms 3600000"))).to_be_visible()


def test_a_topic_is_copied_emptied_and_recreated(open_page: OpenPage, world: World) -> None:
    copy = f"copy-{world.run[::-1]}"
    page = open_page(f"#/topic?name={world.orders}&tab=partitions")
    choose(page, "Actions", "Copy")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill(copy)
    dialog.get_by_label("with the records").check()
    dialog.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("heading", name=copy)).to_be_visible()
    expect(page.get_by_text(f"903 records sent to {copy}")).to_be_visible()
    for action in ("Empty", "Recreate"):
        choose(page, "Actions", action)
        dialog.get_by_role("textbox").fill(copy)
        dialog.get_by_role("button", name=action).click()
        expect(page.locator(".toast", has_text="is empty" if action == "Empty" else "is created anew")).to_be_visible()
        expect(page.locator(".page-head")).to_contain_text("3 partitions · 1 replica · 0 ")
    with Client(world.bootstrap) as client:
        found = {each.name: each.value for each in describe_configs(client, ResourceType.TOPIC, copy)}
    assert found["retention.ms"] == "86400000"


def test_a_config_of_a_broker_is_changed(open_page: OpenPage, world: World) -> None:
    page = open_page("#/overview")
    page.get_by_role("table", name="Brokers").get_by_role("link").first.click()
    page.get_by_label("Filter configs").fill("log.cleaner.backoff.ms")
    expect(page.get_by_role("button", name="Change log.cleaner.backoff.ms")).to_be_visible()
    page.get_by_label("Filter configs").fill("broker.id")
    expect(page.get_by_role("button", name="Change broker.id", exact=True)).to_have_count(0)
    page.get_by_label("Filter configs").fill("log.cleaner.backoff.ms")
    page.get_by_role("button", name="Change log.cleaner.backoff.ms").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill("20s")
    dialog.get_by_role("button", name="Set").click()
    expect(page.locator(".toast")).to_contain_text("log.cleaner.backoff.ms of broker")
    page.get_by_label("Filter configs").fill("log.cleaner.backoff.ms")
    expect(page.get_by_role("table", name="Configs")).to_contain_text("20000 (20 s)")
    page.get_by_role("button", name="Change log.cleaner.backoff.ms").click()
    dialog.get_by_role("button", name="Back to its default").click()
    expect(dialog).to_have_count(0)


def test_offsets_of_one_partition_are_reset(open_page: OpenPage, world: World) -> None:
    group = f"parts-{world.run[::-1]}"
    with Client(world.bootstrap) as client:
        offsets = {TopicPartition(world.orders, number): 100 for number in range(3)}
        assert not commit_offsets(client, group, offsets)
    page = open_page(f"#/group?group={group}")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Partitions")).to_be_hidden()
    dialog.get_by_label("Topic", exact=True).select_option(world.orders)
    dialog.get_by_label("Partitions").fill("1")
    dialog.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("table", name="What would change").locator("tbody tr")).to_have_count(1)
    dialog.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator(".toast")).to_contain_text(f"1 offset of group {group} is reset")
    committed = page.get_by_role("table", name="Partitions").locator("tbody td:nth-child(3)")
    eventually(lambda: committed.all_inner_texts() == ["100", "0", "100"], "one partition begins anew")


def test_a_rule_is_added_after_it_was_seen_who_gains_and_loses(open_page: OpenPage, ruled: RunningConsole) -> None:
    page = open_page("#/access", url=ruled.url)
    page.get_by_role("button", name="Add a rule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Who").fill("User:ann")
    dialog.get_by_label("Name", exact=True).fill("orders")
    preview = dialog.get_by_role("table", name="Who gains or loses what", exact=True)
    expect(preview).to_contain_text("User:ann")
    expect(preview).to_contain_text("read, describe")
    there = dialog.get_by_role("table", name="Who gains or loses what there")
    expect(there).to_contain_text("everybody else")
    assert violations(page) == []
    dialog.get_by_role("button", name="Add", exact=True).click()
    rules = page.get_by_role("table", name="Rules")
    expect(rules).to_contain_text("User:ann")
    page.get_by_role("button", name="Remove the rule of User:ann for READ on orders").click()
    expect(preview).to_contain_text("loses")
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("There are no rules.")).to_be_visible()
    eventually(lambda: any('"delete-rule"' in line and '"done"' in line for line in ruled.audit), "it is audited")


def test_users_and_quotas_are_changed(open_page: OpenPage, ruled: RunningConsole) -> None:
    page = open_page("#/access", url=ruled.url)
    page.get_by_role("button", name="Set a password").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User", exact=True).fill("bob")
    dialog.get_by_label("Password").fill("not-in-a-log")
    expect(dialog.get_by_role("status")).to_contain_text("bob is a new user")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("table", name="Users")).to_contain_text("bob")
    page.get_by_role("button", name="Set a quota").click()
    dialog.get_by_label("user", exact=True).fill("bob")
    dialog.get_by_label("Produced, bytes/s").fill("1048576")
    expect(dialog.get_by_role("table", name="What would change")).to_contain_text("1,048,576")
    assert violations(page) == []
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("table", name="Quotas")).to_contain_text("producer_byte_rate = 1,048,576")
    page.get_by_role("button", name="Change the quotas of user bob").click()
    dialog.get_by_label("Produced, bytes/s").fill("")
    expect(dialog.get_by_role("table", name="What would change")).to_contain_text("gains")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_text("There are no quotas.")).to_be_visible()
    page.get_by_role("button", name="Remove SCRAM-SHA-512 of bob").click()
    expect(dialog).to_contain_text("bob can log in by SCRAM no more; 0 rules stay.")
    dialog.get_by_role("textbox").fill("bob")
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("There are no such users.")).to_be_visible()
    assert "not-in-a-log" not in "".join(ruled.log)
