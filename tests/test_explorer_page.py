"""docs/explorer.md: its session is held as it says, and shows what it shows."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from kbroker.config.listeners import EXPLORER_LISTENER
from kbroker.tools.cli.parser import Parser
from kbroker.tools.cli.watch import add_arguments
from tests.page_node import ENVIRONMENT, FUNCTION, page
from tests.patience import LONG

TEXT, BLOCKS = page("explorer.md")
COMMAND = [sys.executable, "-m", "kbroker"]


def comparable(text: str) -> str:
    """A session without what differs from one to the next: times, ports, versions."""
    text = re.sub(r"\d\d:\d\d:\d\d\.\d\d\d", "TIME", text)
    text = re.sub(r" +[\d.]+ ms", " TOOK", text)
    return re.sub(r"connection \d+ from 127.0.0.1:\d+|kbroker \d[^\s]*", "WHO", text)


def test_the_session_is_as_the_page_shows_it(tmp_path: Path) -> None:
    languages = [language for language, _ in BLOCKS]
    assert languages == ["console", "console", "sh", "text", "text", "python"]
    start, watch, use, lines, details, python = (text for _, text in BLOCKS)
    assert start.splitlines()[1] == "$ kbroker start --explorer"
    environment = dict(ENVIRONMENT)
    log = tmp_path / "log"
    with log.open("w") as errors:
        node = subprocess.Popen(
            [*COMMAND, "start", "--port", "0", "--explorer", "0", "--data-dir", str(tmp_path / "data")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert node.stdout is not None
        environment["KBROKER_BOOTSTRAP"] = node.stdout.readline().split()[-1]
        found = re.search(r"explorer is on http://(127.0.0.1:\d+)", log.read_text())
        assert found is not None
        environment["KBROKER_EXPLORER"] = found[1]
        words = watch.removeprefix("$ kbroker ").split()
        file = tmp_path / "saved.exchanges"
        with subprocess.Popen(
            [*COMMAND, *words, "--count", "3", "--save", str(file)], env=environment, stdout=subprocess.PIPE, text=True
        ) as watcher:
            assert watcher.stdout is not None
            shown = watcher.stdout.readline()
            subprocess.run(["bash", "-ec", FUNCTION + use], env=environment, check=True, capture_output=True)
            shown += watcher.stdout.read()
    finally:
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=2 * LONG)
    assert comparable(shown) == comparable(lines)
    again = [*COMMAND, "watch", "--read", str(file), "--api", "Produce", "--verbose"]
    text = subprocess.run(again, env=environment, capture_output=True, text=True, check=True).stdout
    assert comparable(text).startswith(comparable(details))
    replayed = [sys.executable, "-c", python]
    text = subprocess.run(replayed, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert [line.endswith(" []") for line in text.splitlines()] == [True] * 3, text
    assert not re.search("WARNING|ERROR", log.read_text())


def test_the_options_are_the_command_s() -> None:
    parser = Parser("kbroker watch", "")
    add_arguments("watch", parser)
    known = {option for action in parser._actions for option in action.option_strings}
    shown = set(re.findall(r"[` ](--[a-z]+)[` ]", TEXT)) - {"--explorer"}
    assert shown == {option for option in known if option.startswith("--")} - {"--help", "--explorer", "--count"}
    assert f"{EXPLORER_LISTENER}=http://" in TEXT
