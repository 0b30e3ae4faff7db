"""Tasks from their beginning to their end, in a cluster of three: by the keyboard alone, on a phone, with moves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, RunningConsole, choose, running_console
from kbroker.client.groups import commit_offsets, committed_offsets
from kbroker.client.producer import Producer
from kbroker.client.quotas import alter_quotas
from kbroker.client.share_groups import alter_share_offsets, share_offsets
from kbroker.client.topics import NewTopic, create_topics, describe_topics
from kbroker.testing.cluster import RunningCluster, running_cluster
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record
from tests.every_node import await_topics
from tests.patience import LONG, eventually
from tests.schemas.registry_server import Registry, running_registry

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
import confluent_kafka
from playwright.sync_api import Page, expect

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
MOST_TABS = 120


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[RunningCluster]:
    """Three nodes, with a topic of twenty records on the first, offsets of two groups of it, and a quota."""
    if broker.name == "apache":
        pytest.skip("three nodes of kbroker are started for this")
    with running_cluster(3) as running, running.client() as client:
        create_topics(
            client,
            [
                NewTopic(
                    "orders",
                    configs={"retention.ms": "-1", "segment.bytes": "1048576"},
                    assignment=[[running.nodes[0].id]],
                )
            ],
        )
        await_topics(running, "orders")
        producer = Producer(client, "orders", [0], on_refused=print)
        for number in range(20):
            producer.send(Record(0, 1_700_000_000_000, None, b"%d" % number), number, 0)
        producer.flush()
        assert not commit_offsets(client, "billing", {TopicPartition("orders", 0): 15})
        assert not alter_share_offsets(client, "pickers", {TopicPartition("orders", 0): 15})
        alter_quotas(client, {"user": "ann"}, {"producer_byte_rate": 1_048_576.0})
        yield running


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


@pytest.fixture(scope="module")
def changing(cluster: RunningCluster, registry: Registry) -> Iterator[RunningConsole]:
    """A console that may change things there, and decodes records."""
    with running_console("-b", cluster.bootstrap_servers, "--writes", "--registry", registry.url) as running:
        yield running


FOCUSED = """() => {
  const at = document.activeElement;
  const label = at.labels?.length ? at.labels[0].textContent : "";
  return (at.getAttribute("aria-label") || label || at.textContent || "").trim();
}"""


def tab_to(page: Page, name: str) -> None:
    """Press Tab until what is called so has the focus."""
    met = []
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        met.append(page.evaluate(FOCUSED))
        if re.match(rf"{re.escape(name)}($|\W)", met[-1]):
            return
    raise AssertionError(f"Tab does not come to {name}: {met}")


def in_transaction(cluster: RunningCluster, transactional_id: str, topic: str) -> confluent_kafka.Producer:
    """A producer that has written a record in a transaction, which is open."""
    options: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id}
    options["transaction.timeout.ms"] = 600_000
    producer = confluent_kafka.Producer(options)
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(LONG) == 0
    return producer


def audited(console: RunningConsole, action: str, target: str) -> bool:
    return any(f'"action": "{action}"' in line and target in line and '"done"' in line for line in console.audit)


def opened_by_keys(open_page: OpenPage, console: RunningConsole, keys: str) -> Page:
    """The page that these keys lead to from the overview."""
    page = open_page("#/overview", url=console.url)
    for key in keys:
        page.keyboard.press(key)
    return page


def test_a_topic_is_created_by_the_keyboard_alone(open_page: OpenPage, changing: RunningConsole) -> None:
    page = opened_by_keys(open_page, changing, "gt")
    expect(page.get_by_role("heading", name="Topics")).to_be_focused()
    tab_to(page, "New topic")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    tab_to(page, "Name")
    page.keyboard.type("by-keys")
    tab_to(page, "Partitions")
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    tab_to(page, "Create")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="by-keys")).to_be_visible()
    expect(page.locator(".page-head")).to_contain_text("2 partitions")
    eventually(lambda: audited(changing, "create-topic", "by-keys"), "it is audited")


@pytest.mark.parametrize("group", ["billing", "pickers"])
def test_offsets_are_reset_by_the_keyboard_alone(
    open_page: OpenPage, cluster: RunningCluster, changing: RunningConsole, group: str
) -> None:
    """Of a group of consumers and of a share group."""
    page = opened_by_keys(open_page, changing, "gg")
    expect(page.get_by_role("link", name=group, exact=True)).to_be_visible()
    tab_to(page, group)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=group)).to_be_visible()
    tab_to(page, "Reset offsets")
    page.keyboard.press("Enter")
    tab_to(page, "To")
    chosen = page.get_by_role("dialog").get_by_label("To", exact=True)
    for _ in range(10):
        if chosen.input_value() == "shift":
            break
        page.keyboard.press("ArrowDown")
    assert chosen.input_value() == "shift"
    tab_to(page, "Number")
    page.keyboard.press("Control+A")
    page.keyboard.type("-5")
    tab_to(page, "Preview")
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="What would change")).to_contain_text("10")
    tab_to(page, "Reset")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("1 offset")
    orders = TopicPartition("orders", 0)
    with cluster.client() as client:
        if group == "billing":
            assert committed_offsets(client, group)[orders].offset == 10
        else:
            assert share_offsets(client, group)[orders].start == 10


def test_a_transaction_is_aborted_by_the_keyboard_alone(
    open_page: OpenPage, cluster: RunningCluster, changing: RunningConsole
) -> None:
    producer = in_transaction(cluster, "mover", "orders")
    page = opened_by_keys(open_page, changing, "gx")
    expect(page.get_by_role("button", name="Abort mover")).to_be_visible()
    tab_to(page, "Abort mover")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    tab_to(page, "Type mover")
    page.keyboard.type("mover")
    tab_to(page, "Abort")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("table", name="Transactions")).to_contain_text(re.compile("Empty|CompleteAbort"))
    assert page.evaluate("document.activeElement !== document.body || document.hasFocus()")
    eventually(lambda: audited(changing, "abort-transaction", "mover"), "it is audited")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(LONG)


def test_a_record_is_produced_on_a_phone(open_page: OpenPage, changing: RunningConsole) -> None:
    page = open_page("#/topics", url=changing.url, **PHONE)
    page.get_by_role("button", name="New topic").tap()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("by-thumb")
    dialog.get_by_role("button", name="Create").tap()
    expect(page.get_by_role("heading", name="by-thumb")).to_be_visible()
    page.get_by_role("button", name="Produce").tap()
    dialog.get_by_label("Value", exact=True).fill("from a phone")
    button = dialog.get_by_role("button", name="Produce")
    box = button.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    button.tap()
    row = page.locator("tr[data-record]")
    expect(row).to_contain_text("from a phone")
    row.tap()
    expect(page.locator("tr.detail")).to_contain_text("from a phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_partition_is_moved_to_the_end(
    open_page: OpenPage, cluster: RunningCluster, changing: RunningConsole
) -> None:
    first, second = cluster.nodes[0].id, cluster.nodes[1].id
    page = open_page("#/topic?name=orders&tab=partitions", url=changing.url)
    choose(page, "Actions", "Move partitions")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(f"broker {first}", exact=True).uncheck()
    dialog.get_by_label(f"broker {second}", exact=True).check()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("table", name="What would move")).to_contain_text(str(second))
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("1 partition")
    with cluster.client() as client:

        def replicas() -> list[int]:
            topic = describe_topics(client, ["orders"])["orders"]
            return [] if isinstance(topic, Exception) else list(topic.partitions[0].replicas)

        eventually(lambda: replicas() == [second], "the partition has moved")
    page.reload()
    expect(page.get_by_text("moving")).to_have_count(0)
    partitions = page.get_by_role("table", name="Partitions").locator("tbody tr").first
    expect(partitions.get_by_role("cell").nth(1)).to_contain_text(str(second))
    page.goto(f"{changing.url}#/topic?name=orders&from=earliest")
    expect(page.locator("tr[data-record]").first).to_be_visible()


def test_quotas_and_where_a_config_comes_from_are_shown(open_page: OpenPage, changing: RunningConsole) -> None:
    page = open_page("#/access", url=changing.url, expect=(409,))
    quotas = page.get_by_role("table", name="Quotas")
    expect(quotas).to_contain_text("user ann")
    expect(quotas).to_contain_text("producer_byte_rate = 1,048,576")
    page.goto(f"{changing.url}#/topic?name=orders&tab=configs")
    row = page.get_by_role("row", name=re.compile(r"segment\.bytes 1048576"))
    row.locator("summary").click()
    expect(row.locator(".synonyms")).to_contain_text("log.segment.bytes=1073741824 default")


def test_a_transaction_is_ended_in_one_partition(
    open_page: OpenPage, cluster: RunningCluster, changing: RunningConsole
) -> None:
    producer = in_transaction(cluster, "left", "left-open")
    await_topics(cluster, "left-open")  # which is made by its first record
    page = open_page("#/topic?name=left-open&tab=groups", url=changing.url)
    held = page.get_by_role("table", name="Open transactions")
    expect(held).to_contain_text("left")
    held.get_by_role("button", name="Abort").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort").click()
    expect(page.locator(".toast")).to_contain_text("left-open-0 is aborted")
    expect(held).to_have_count(0)
    eventually(lambda: audited(changing, "abort-hanging", "left-open-0"), "it is audited")
    del producer


def test_protobuf_is_read_as_json(
    open_page: OpenPage, cluster: RunningCluster, changing: RunningConsole, registry: Registry
) -> None:
    pytest.importorskip("google.protobuf")
    from tests.schemas.protobuf_files import INT64, STRING, classes_of, encoded, file_of, message_of

    file = file_of("orders.proto", "shop", message_of("Order", {"number": INT64, "buyer": STRING}))
    schema = registry.add("proto", encoded(file), "PROTOBUF")
    head = b"\0" + schema.to_bytes(4, "big") + b"\0"
    order = classes_of(file)("shop.Order")(number=7, buyer="Ann").SerializeToString()
    with cluster.client() as client:
        create_topics(client, [NewTopic("protobuf", 1, 1, {"retention.ms": "-1"})])
        await_topics(cluster, "protobuf")
        producer = Producer(client, "protobuf", [0], on_refused=print)
        for value in (head + order, head + b"\xff"):
            producer.send(Record(0, 1_700_000_000_000, None, value), 0)
        producer.flush()
    page = open_page("#/topic?name=protobuf&from=earliest", url=changing.url)
    found = page.locator("tr[data-record]")
    expect(found).to_have_count(2)
    expect(found.first).to_contain_text('"buyer"')
    found.first.click()
    expect(page.locator("tr.detail")).to_contain_text('"buyer": "Ann"')
    expect(page.locator("tr.detail")).to_contain_text(f"Schema {schema}, Protobuf")
    page.get_by_label("Filter", exact=True).fill("$.buyer = Ann")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(found).to_have_count(1)
