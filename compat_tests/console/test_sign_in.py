"""Signing in, in the browser, beside a broker whose users have passwords and rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.console.accessibility import violations
from compat_tests.console.conftest import NO_PLAYWRIGHT, SCREENSHOTS, OpenPage, RunningConsole, choose, running_console
from kbroker.client import Client
from kbroker.client.acls import create_acls
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.client.topics import NewTopic, create_topics
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.testing import running_broker

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import expect


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console whose users sign in, over TLS, and which watches the broker; alice may read the topic orders."""
    config: Path = tmp_path_factory.mktemp("console") / "client.properties"
    explorer = {"kbroker.explorer.listener": "http://127.0.0.1:0"}
    with running_broker(explorer, security="sasl_ssl", super_users=["admin"]) as broker:
        stores = {name: text for name, text in broker.client_properties("admin").items() if name.startswith("ssl.")}
        properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **stores}
        config.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
        security = security_of(ClientProperties(broker.client_properties("admin")))
        with Client(broker.bootstrap_servers, security=security) as client:
            create_topics(client, [NewTopic("orders", 1, 1), NewTopic("salaries", 1, 1)])
            rule = (ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ)
            assert create_acls(client, [Acl(*rule, AclPermission.ALLOW)]) == []
        words = ["-b", broker.bootstrap_servers, "--command-config", str(config), "--sign-in", "--writes"]
        words += ["--explorer", f"127.0.0.1:{broker.in_broker(lambda node: node.explorer_port)}"]
        with running_console(*words) as running:
            yield running


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_sees_what_the_cluster_lets_them(open_page: OpenPage, secure: RunningConsole, theme: str) -> None:
    page = open_page("", url=secure.url, color_scheme=theme, expect=(401, 403))
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"sign-in-{theme}.png")
    assert violations(page) == []
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the password is another")
    page.get_by_label("Password").fill("alice-secret")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_focused()
    page.get_by_role("link", name="Topics").click()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    expect(page.get_by_role("link", name="salaries")).to_have_count(0)
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name", exact=True).fill("alices")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("not authorized")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill("admin-secret")
    page.keyboard.press("Enter")
    expect(page.locator(".user")).to_have_text("signed in as admin")
    page.goto(f"{secure.url}#/access")
    page.get_by_label("Who").fill("User:alice")
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Ask the rules").click()
    expect(page.locator(".answer")).to_contain_text("yes allowed by the ACL ALLOW READ for User:alice")
    page.get_by_label("May").select_option("WRITE")
    page.get_by_role("button", name="Ask the rules").click()
    expect(page.locator(".answer")).to_contain_text("no no ACL allows it")
    expect(page.get_by_role("table", name="Rules")).to_contain_text("User:alice")
    page.screenshot(path=SCREENSHOTS / f"access-rules-{theme}.png")
    assert violations(page) == []
    # Whoever is connected, and by which TLS.
    page.goto(f"{secure.url}#/explorer")
    page.locator("summary", has_text="Clients").click()
    client = page.locator(".clients tbody tr").filter(has_text="User:admin").first
    expect(client).to_contain_text("SASL_SSL")
    expect(client).to_contain_text(re.compile(r"TLSv1\.[23] \w+"))
    expect(client).to_contain_text("SCRAM-SHA-512")
    text = "\n".join(secure.log)
    assert "alice-secret" not in text and "admin-secret" not in text


def test_what_is_typed_stays_though_another_answer_says_that_nobody_is_signed_in(
    open_page: OpenPage, secure: RunningConsole
) -> None:
    """Of several questions that are refused each has the page look who is signed in."""
    page = open_page("", url=secure.url)
    page.get_by_label("User").fill("alice")
    with page.expect_response(re.compile("/api/session")) as looked:
        page.evaluate("window.dispatchEvent(new Event('signed-out'))")
    looked.value.finished()
    page.evaluate("() => fetch('api/session').then((answer) => answer.json())")  # which comes after it
    expect(page.get_by_label("User")).to_have_value("alice")
    expect(page.get_by_label("User")).to_be_focused()


def test_copies_are_not_shown_to_whoever_signs_in_next(
    open_page: OpenPage, secure: RunningConsole, tmp_path: Path
) -> None:
    page = open_page("", url=secure.url, expect=(401, 403))
    copies = page.locator("#copies .copy")

    def sign_in(user: str) -> None:
        page.get_by_label("User").fill(user)
        page.get_by_label("Password").fill(f"{user}-secret")
        page.keyboard.press("Enter")
        expect(page.locator(".user")).to_have_text(f"signed in as {user}")

    sign_in("admin")
    page.goto(f"{secure.url}#/topic?name=salaries")
    file = tmp_path / "secret.jsonl"
    file.write_text('{"value": "one"}\n')
    choose(page, "Actions", "Import")
    page.get_by_label("File", exact=True).set_input_files(file)
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    expect(copies).to_contain_text("1 record stored in salaries")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(copies).to_have_count(0)
    sign_in("alice")
    expect(page.get_by_role("link", name="Topics")).to_be_visible()
    expect(copies).to_have_count(0)
