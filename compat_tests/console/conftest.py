"""A console beside the broker under test, what it shows, and Chromium to look at it with."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.chromium import FLAGS, find_chromium
from compat_tests.console.world import World
from tests.patience import LONG, LONG_MS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

NO_PLAYWRIGHT = "playwright is not installed: pip install 'kbroker[browser]'"


UNHURRIED = """(() => {
  const own = window.setTimeout;
  window.setTimeout = (work, ms, ...more) => own(work, ms >= 1500 ? 20 * ms : ms, ...more);
})()"""
"""A page that lets a person's time pass slowly: a line that passes stays until it is seen, the second key of two may
come late. What it asks again after a second or less it asks as ever."""

SCREENSHOTS = Path(__file__).parents[2] / "out" / "screenshots"


class RunningConsole:
    """``kbroker console`` as a process; ``audit`` are the lines that it has logged."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "kbroker", "console", "--listen", "127.0.0.1:0", *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        if found is None:
            self._process.wait(LONG)
            assert self._process.stderr is not None
            raise AssertionError(self._process.stderr.read())
        self.url = found.group()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        self.log += iter(self._process.stderr.readline, "")

    @property
    def audit(self) -> list[str]:
        return [line for line in self.log if line.startswith("audit ")]

    def stop(self) -> None:
        """End it as Ctrl-C does; it has to go at once, and to have logged nothing but its audit."""
        self._process.terminate()
        code = self._process.wait(LONG)
        self._reader.join(LONG)
        assert code == 0, self.log
        assert [line for line in self.log if not line.startswith("audit ")] == []


@contextmanager
def running_console(*words: str) -> Iterator[RunningConsole]:
    """A console until the block ends."""
    console = RunningConsole(*words)
    try:
        yield console
    finally:
        console.stop()


@pytest.fixture(scope="package")
def world(bootstrap: str) -> Iterator[World]:
    """Topics, records, groups and a transaction to be looked at."""
    made = World(bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="package")
def tables(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A file of two tables, one with rows and dead letters, one that nobody has followed; None without deltalake."""
    if importlib.util.find_spec("deltalake") is None:
        return None
    directory = tmp_path_factory.mktemp("tables")
    to = f"delta:{directory}/orders"
    command = [
        sys.executable,
        "-m",
        "kbroker",
        "table",
        "follow",
        world.orders,
        "--to",
        to,
        "--value",
        "json",
        "--once",
    ]
    subprocess.run([*command, "--to", to, "-b", world.bootstrap], check=True, stdout=subprocess.DEVNULL)
    later = f'[[table]]\ntopic = "{world.empty}"\nto = "delta:{directory}/later"\n'
    (directory / "tables.toml").write_text(f'[[table]]\ntopic = "{world.orders}"\nto = "{to}"\n{later}')
    return directory / "tables.toml"


@pytest.fixture(scope="package")
def console(world: World, tables: Path | None) -> Iterator[RunningConsole]:
    """A console that may change things, with a mask, and with tables if there may be some."""
    words = [] if tables is None else ["--tables", str(tables)]
    with running_console(
        "-b", world.bootstrap, "--writes", "--mask", f"{world.masked}=$.card,headers", *words
    ) as running:
        yield running


# Chromium's driver keeps an event loop in this thread while it lives: it ends with these tests, for those after them.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium without a window, with an empty profile."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    api = pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
    with tempfile.TemporaryDirectory() as profile, api.sync_playwright() as playwright:
        api.expect.set_options(timeout=LONG_MS)
        made = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS], downloads_path=profile)
        yield made
        made.close()


OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: Browser, console: RunningConsole) -> Iterator[OpenPage]:
    """``open_page("#/topics")`` shows a page of the console; nothing may go wrong in the browser meanwhile."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_at(
        place: str, *, url: str | None = None, expect: tuple[int, ...] = (), hurried: bool = False, **options: Any
    ) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        if not hurried:
            context.add_init_script(UNHURRIED)
        page = context.new_page()
        page.set_default_timeout(LONG_MS)

        def told(text: str) -> None:
            # The browser tells each answer that is an error; those that a test makes on purpose are none.
            if not any(f"status of {status}" in text for status in expect):
                complaints.append(text)

        def heard(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                told(f"{message.text} {message.location['url']}")

        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{url or console.url}{place}")
        page.wait_for_selector("main h1")
        return page

    yield open_at
    for context in contexts:
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")  # an answer under way would fail in the next test
        context.close()
    assert complaints == []


def choose(page: Page, menu: str, item: str) -> None:
    """Click an item of a menu."""
    page.get_by_role("button", name=menu, exact=True).click()
    page.locator(".menu").get_by_role("button", name=item, exact=True).click()


def await_followed(page: Page) -> None:
    """Wait until a page of the explorer is told all that its nodes are asked from now on."""
    # The console follows nodes only while somebody looks: none counts as silent before.
    page.locator(".explorer .state", has_text="requests shown").wait_for()
    question = "() => fetch('api/explorer/nodes').then((answer) => answer.json())"
    eventually(lambda: page.evaluate(question)["silent"] == {}, "all nodes are followed")
