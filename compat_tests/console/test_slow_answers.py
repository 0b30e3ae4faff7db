"""Pages while the cluster takes its time, or has more than is asked for."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal

import pytest

from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, choose
from compat_tests.console.world import World
from tests.patience import eventually

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import Locator, Page, Route, expect

NOTE_WHAT_IS_READ = """() => {
  const own = Response.prototype.json;
  window.wasRead = [];
  Response.prototype.json = async function () {
    const told = await own.call(this);
    setTimeout(() => window.wasRead.push(this.url));
    return told;
  };
}"""
"""The addresses of answers with which the page has done its work: a timer comes after all that waits for them."""


def test_a_page_asks_again_when_it_has_its_answer(open_page: OpenPage) -> None:
    """A page that asked each second of a cluster that is down would keep all threads of the console busy."""
    page = open_page("#/transactions")
    page.clock.install()
    page.reload()
    page.wait_for_selector("main h1")
    expect(page.locator(".page-head, main").get_by_text(re.compile("transactional ids?$")).first).to_be_visible()
    held: list[Route] = []
    page.route(re.compile(r"/api/transactions(\?|$)"), lambda route: held.append(route))

    def is_asked() -> bool:
        page.clock.run_for(1000)
        return len(held) > 0

    eventually(is_asked, "the page asks")
    page.clock.run_for(10_000)
    page.evaluate("() => 1")
    assert len(held) == 1
    held.pop().continue_()
    eventually(is_asked, "the page asks again")
    page.unroute_all(behavior="ignoreErrors")


def test_a_line_passes_and_the_second_of_two_keys_is_waited_for(open_page: OpenPage, world: World) -> None:
    """Six seconds, and one and a half; the page's clock stands but for what is said here."""
    page = open_page(f"#/topic?name={world.orders}", expect=(404,), hurried=True)
    page.clock.install()
    page.reload()
    page.wait_for_selector("main h1")
    page.clock.pause_at(datetime.now() + timedelta(days=1))
    page.get_by_label("Partitions").fill("7")
    choose(page, "Export", "Export CSV")
    line = page.locator(".toast")
    expect(line).to_contain_text("Nothing is exported")
    page.clock.run_for(5000)
    expect(line).to_be_visible()
    page.clock.run_for(1100)
    expect(line).to_have_count(0)
    place = page.url
    page.keyboard.press("g")
    page.clock.run_for(1600)
    page.keyboard.press("t")
    assert page.url == place
    page.keyboard.press("g")
    page.clock.run_for(1400)
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()


@pytest.mark.parametrize("place", ["overview", "groups"])
def test_groups_that_are_not_asked_for_their_lags_are_told_of(open_page: OpenPage, place: str) -> None:
    page = open_page("#/topics")
    told = {"rows": [], "asked": 200, "groups": 1234, "now": 0}
    page.route("**/api/groups/lags", lambda route: route.fulfill(json=told))
    page.goto(f"{page.url.split('#')[0]}#/{place}")
    expect(page.get_by_text("Of 1,234 groups 200 were asked for their lags.")).to_be_visible()


def test_coordinators_that_were_not_asked_are_told_of(open_page: OpenPage) -> None:
    page = open_page("#/topics")
    told = {"rows": [], "total": 0, "all": 0, "missing": ["broker 2 is not there"], "now": 0}
    page.route("**/api/transactions?**", lambda route: route.fulfill(json=told))
    page.goto(f"{page.url.split('#')[0]}#/transactions?filter=x")
    expect(page.get_by_text("Some may be missing: broker 2 is not there.")).to_be_visible()


def test_nothing_is_done_with_a_page_that_is_left(open_page: OpenPage, world: World) -> None:
    """The next topic is slow to be told; a form that opened meanwhile would be about the last one."""
    page = open_page(f"#/topic?name={world.orders}")
    button = page.locator("main button", has_text=re.compile("^Produce$"))
    expect(button).to_be_visible()
    held: list[Route] = []
    page.route(re.compile(r"/api/topic\?"), lambda route: held.append(route))
    page.goto(f"{page.url.split('#')[0]}#/topic?name={world.masked}")
    eventually(lambda: page.evaluate("true") and bool(held), "the next topic is asked for")
    assert not button.evaluate("(it) => { it.focus(); return document.activeElement === it; }")
    assert not button.evaluate(
        """(it) => {
            const box = it.getBoundingClientRect();
            return it.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));
        }"""
    )
    held.pop().continue_()
    choose(page, "Actions", "Import")
    expect(page.get_by_role("dialog")).to_contain_text(f"Import records into {world.masked}")


def test_a_form_is_not_opened_over_another_page(open_page: OpenPage, world: World) -> None:
    """The form for moves asks for the brokers first; who goes on meanwhile does not want it any more."""
    page = open_page(f"#/topic?name={world.orders}")
    held: list[Route] = []
    page.route(re.compile(r"/api/overview"), lambda route: held.append(route))
    choose(page, "Actions", "Move partitions")
    eventually(lambda: page.evaluate("true") and bool(held), "the brokers are asked for")
    with page.expect_event("requestfailed", lambda request: "/api/overview" in request.url):
        page.goto(f"{page.url.split('#')[0]}#/topic?name={world.masked}")
    expect(page.get_by_role("heading", name=world.masked)).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_heading_keeps_the_focus_though_it_is_drawn_anew(open_page: OpenPage, world: World) -> None:
    """The focus is there when a page has been entered, for people who hear it, and they go on from there."""
    page = open_page(f"#/groups?filter={world.group}")
    page.clock.install()
    page.reload()
    page.get_by_role("link", name=world.group, exact=True).click()
    heading = page.get_by_role("heading", name=world.group)
    expect(heading).to_be_focused()
    page.evaluate(NOTE_WHAT_IS_READ)
    _await_told(page, "group")
    expect(heading).to_be_focused()


def _await_told(page: Page, asked: str) -> None:
    """Wait until the page, whose clock goes on meanwhile, has been told anew what it shows, and has drawn it."""
    page.evaluate("window.wasRead = []")

    def is_told() -> bool:
        page.clock.run_for(1000)
        told: list[str] = page.evaluate("window.wasRead")
        return sum(f"/api/{asked}?" in url for url in told) > 1  # of the first the page may have known before

    eventually(is_told, "the page is told anew")


def _press(page: Page, target: Locator, asked: str) -> None:
    """Click, but let the mouse go only when the page has been told anew what it shows."""
    page.evaluate(NOTE_WHAT_IS_READ)
    target.hover()
    page.mouse.down()
    _await_told(page, asked)
    page.mouse.up()


@pytest.mark.parametrize(
    ("place", "asked", "role", "name"),
    [
        ("#/group?group={group}", "group", "button", "Reset offsets"),
        ("#/topics?filter={run}", "topics", "link", "{orders}"),
        ("#/topic?name={orders}&tab=partitions", "topic", "link", "Records of partition 0"),
    ],
)
def test_a_click_counts_though_the_page_is_told_anew_meanwhile(
    open_page: OpenPage, world: World, place: str, asked: str, role: Literal["button", "link"], name: str
) -> None:
    """A page that drew a button anew while it was pressed would not be told of the click."""
    page = open_page(place.format(**vars(world)))
    page.clock.install()
    page.reload()
    target = page.get_by_role(role, name=name.format(**vars(world)))
    expect(target).to_be_visible()
    _press(page, target, asked)
    page.clock.run_for(10)
    shown = page.get_by_role("dialog") if role == "button" else page.locator("tr[data-record]").first
    expect(shown).to_be_visible()


def test_an_answer_to_an_earlier_question_is_not_shown(open_page: OpenPage) -> None:
    """The first of two questions is answered last: whether somebody may read, when it is whether they may write."""
    page = open_page("#/access", expect=(409,))
    held: list[Route] = []

    def answer(route: Route) -> None:
        if "operation=READ" in route.request.url:
            held.append(route)
        else:
            route.fulfill(json={"allowed": False, "reason": "no ACL allows it", "note": ""})

    page.route("**/api/acls/check**", answer)
    page.get_by_label("Who").fill("User:alice")
    page.get_by_label("Name").fill("orders")
    page.get_by_label("May").select_option("READ")
    page.get_by_role("button", name="Ask the rules").click()
    eventually(lambda: page.evaluate("true") and bool(held), "the first question is asked")
    page.get_by_label("May").select_option("WRITE")
    page.get_by_role("button", name="Ask the rules").click()
    expect(page.locator(".answer")).to_contain_text("no ACL allows it")
    page.evaluate(NOTE_WHAT_IS_READ)
    held[0].fulfill(json={"allowed": True, "reason": "everybody may read", "note": ""})
    eventually(lambda: page.evaluate("window.wasRead.some((url) => url.includes('operation=READ'))"), "it is read")
    expect(page.locator(".answer")).to_contain_text("no ACL allows it")
    page.get_by_label("Name").fill("payments")
    expect(page.locator(".answer")).to_be_empty()
