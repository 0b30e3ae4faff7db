"""Schemas, records by a schema, a topic's analysis, and several clusters, in the browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from compat_tests.console.accessibility import violations
from compat_tests.console.conftest import NO_PLAYWRIGHT, SCREENSHOTS, OpenPage, RunningConsole, running_console
from compat_tests.console.world import make_topics
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic
from kbroker.registry.server import RegistryServer
from kbroker.testing import RunningBroker, running_broker
from kbroker.wire.record_batch import Record
from tests.registry.registry_client import Asked

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
pytest.importorskip("grpc_tools", reason="kbroker[registry] is not installed")
from playwright.sync_api import expect

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "paid", "type": "boolean", "default": False}]}
NARROW = {**ORDER, "fields": [*ORDER["fields"], {"name": "must", "type": "string"}]}
PARCEL = 'syntax = "proto3";\nmessage Parcel {\n  int64 number = 1;\n}\nmessage Return {\n  string reason = 1;\n}\n'


@pytest.fixture(scope="module")
def first() -> Iterator[RunningBroker]:
    with running_broker() as running:
        make_topics(
            running.bootstrap_servers, NewTopic("orders", 1, 1), NewTopic("parcels", 1, 1), NewTopic("shown", 1, 1)
        )
        with running.client() as client:
            producer = Producer(client, "shown", [0], on_refused=print)
            producer.send(Record(0, 1_700_000_000_000, b"k", b"v"), 0)
            producer.flush()
        yield running


@pytest.fixture(scope="module")
def several(first: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with a registry, and with two more clusters: one is there, the other is not."""
    home = tmp_path_factory.mktemp("home")
    (home / "kbroker").mkdir()
    with (
        running_broker() as other,
        RegistryServer(first.bootstrap_servers) as registry,
        pytest.MonkeyPatch.context() as m,
    ):
        make_topics(other.bootstrap_servers, NewTopic("elsewhere", 1, 1))
        profiles = (
            f'[profiles.staging]\nbootstrap = "{other.bootstrap_servers}"\n[profiles.gone]\nbootstrap = "127.0.0.1:9"\n'
        )
        (home / "kbroker" / "profiles.toml").write_text(profiles)
        m.setenv("XDG_CONFIG_HOME", str(home))
        words = ("-b", first.bootstrap_servers, "--writes", "--registry", registry.url, "--profiles", "all")
        for schema in (ORDER, WIDER):
            Asked(registry.url).register("shown-value", schema)
        with running_console(*words) as running:
            yield running


def register(page: Page, text: str) -> None:
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Schema", exact=True).fill(text)
    dialog.get_by_role("button", name="Register").click()


def test_schemas_are_registered_compared_and_used(open_page: OpenPage, several: RunningConsole) -> None:
    page = open_page("#/subjects", url=several.url, expect=(400,))
    dialog = page.get_by_role("dialog")
    for subject, kind, text in (
        ("orders-value", "AVRO", json.dumps(ORDER)),
        ("parcels-value", "PROTOBUF", PARCEL),
        ("orders-key", "JSON", '{"type": "object", "required": ["n"]}'),
    ):
        page.goto(f"{several.url}#/subjects")
        page.get_by_role("button", name="New subject").click()
        dialog.get_by_label("Subject").fill(subject)
        dialog.get_by_label("Type").select_option(kind)
        register(page, text)
        expect(page.get_by_role("heading", name=subject)).to_be_visible()
    page.goto(f"{several.url}#/subject?name=orders-value")
    page.get_by_role("button", name="New version").click()
    register(page, json.dumps(NARROW))
    expect(dialog).to_contain_text("It is not compatible, and is not registered.")
    expect(dialog.get_by_role("status")).to_contain_text("must")
    assert violations(page) == []
    register(page, json.dumps(WIDER))
    expect(page.locator(".page-head")).to_contain_text("2 versions")
    page.get_by_label("Compared with").select_option("1")
    expect(page.locator("ins", has_text='"paid"')).to_be_visible()
    expect(page.locator("del")).to_have_count(0)

    page.goto(f"{several.url}#/topic?name=orders")
    page.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_label("Schema of the value")).to_have_value("orders-value")
    value = dialog.get_by_label("Value", exact=True)
    expect(value).to_have_value(re.compile('"note": ""'))
    value.fill('{"id": "seven", "note": ""}')
    dialog.get_by_label("Key", exact=True).fill('{"n": 1}')
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        "the value does not fit its schema: $.id: a whole number is wanted"
    )
    assert violations(page) == []
    value.fill('{"id": 7, "note": "by hand"}')
    dialog.get_by_role("button", name="Produce").click()
    row = page.locator("tr[data-record]")
    expect(row).to_contain_text("by hand")
    row.click()
    expect(page.locator("tr.detail")).to_contain_text(re.compile(r"Schema \d+, Avro"))
    expect(page.locator("tr.detail")).to_contain_text(re.compile(r"Schema \d+, JSON Schema"))

    page.goto(f"{several.url}#/topic?name=parcels")
    page.get_by_role("button", name="Produce").click()
    dialog.get_by_label("Message of the value's schema").select_option("Return")
    expect(value).to_have_value(re.compile('"reason"'))
    value.fill('{"reason": "too large"}')
    dialog.get_by_role("button", name="Produce").click()
    expect(row).to_contain_text("too large")


def test_the_new_pages_violate_no_rule_of_accessibility(open_page: OpenPage, several: RunningConsole) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page = open_page("#/subjects", url=several.url)
    found = {}
    for name, place, seen in (
        ("subjects", "#/subjects", ".paged a"),
        ("subject", "#/subject?name=shown-value", ".schema-text"),
        ("difference", "#/subject?name=shown-value&version=2&with=1", "ins"),
        ("analysis", "#/topic?name=shown&tab=analysis", "form"),
    ):
        page.goto(several.url + place)
        page.wait_for_selector(seen)
        if name == "analysis":
            page.get_by_role("button", name="Analyse").click()
            expect(page.locator("main .bar[role=status]")).to_contain_text("Done: 1 record in 1 of 1 offset")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.screenshot(path=SCREENSHOTS / f"{name}-{theme}.png", animations="disabled")
            found[name, theme] = violations(page)
    for button in ("Compatibility", "Delete"):
        page.goto(f"{several.url}#/subject?name=shown-value")
        page.get_by_role("button", name=button, exact=True).click()
        found[button, ""] = violations(page)
        page.keyboard.press("Escape")
    assert not any(found.values()), found


def test_the_whole_page_goes_to_another_cluster_and_back(open_page: OpenPage, several: RunningConsole) -> None:
    page = open_page("#/topics", url=several.url, expect=(502,), **PHONE)
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    page.get_by_role("button", name="Cluster: this cluster").click()
    menu = page.locator(".cluster .menu")
    expect(menu.get_by_role("link", name="staging")).to_contain_text("1 broker")
    expect(menu.get_by_role("link", name="gone")).to_contain_text("cannot connect to 127.0.0.1:9")
    assert violations(page) == []
    menu.get_by_role("link", name="staging").click()
    expect(page.get_by_role("link", name="elsewhere")).to_be_visible()
    assert page.url == f"{several.url}at/staging/#/topics"
    expect(page.get_by_role("link", name="orders", exact=True)).to_have_count(0)
    page.get_by_role("link", name="elsewhere").click()
    assert page.url.startswith(f"{several.url}at/staging/#/topic?name=elsewhere")
    expect(page).to_have_title(re.compile("elsewhere – staging"))
    page.goto(f"{several.url}at/gone/#/topics")
    expect(page.get_by_role("alert")).to_contain_text("cannot connect to 127.0.0.1:9")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
