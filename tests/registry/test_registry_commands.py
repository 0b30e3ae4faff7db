"""The commands that have a registry, and their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_command import kbroker
from tests.control_client import Control, command, write_secure_node
from tests.registry.registry_client import Asked

pytestmark = pytest.mark.slow


def test_kbroker_start(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    words = ["start", "--port", "0", "--registry", "0.0.0.0:0", "--registry-token-file", "token"]
    with command(*words, "--control", "0", cwd=tmp_path) as (_, told):
        url = told["registry"].replace("0.0.0.0", "127.0.0.1")
        ask = Asked(url, {"Authorization": "Bearer s3cret"})
        known = ask.register("a", '"string"')
        assert Asked(url).error("GET", "/subjects")[0] == 401
        assert Control(told["control"]).do("GET", "/")["registry_url"] == told["registry"]
    with command("start", "--port", "0", "--registry", "0", cwd=tmp_path) as (_, told):
        ask = Asked(told["registry"])
        assert ask("GET", "/subjects") == ["a"] and ask.register("b", '"string"') == known
        assert "compact" in kbroker("topic", "describe", "_schemas", "-b", told["ready"]).stdout


@pytest.mark.parametrize(
    "also", [("--control", "0"), pytest.param(("--secure",), marks=pytest.mark.everything)], ids=["control", "secure"]
)
def test_kbroker_up(tmp_path: Path, also: tuple[str, ...]) -> None:
    with command("up", "-n", "3", "--port", "0", "--registry", "0", *also, cwd=tmp_path) as (_, told):
        ask = Asked(told["registry"])
        assert ask.register("a", '"string"') == 1 and ask("GET", "/subjects") == ["a"]
        if "control" in told:
            assert Control(told["control"]).do("GET", "/")["registry_url"] == told["registry"]


def test_a_registry_behind_a_secure_listener(tmp_path: Path) -> None:
    write_secure_node(tmp_path)
    words = ["start", "-c", "node.properties", "--registry", "0", "--registry-config", "admin.properties"]
    with command(*words, cwd=tmp_path) as (_, told):
        assert Asked(told["registry"]).register("a", '"string"') == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["start", "--registry", "0.0.0.0:8081"], "--registry-token-file FILE"),
        (["start", "--registry", "here"], "expected [HOST:]PORT, such as 8081"),
        (["start", "--registry-token-file", "x"], "goes with --registry"),
        (["start", "--registry", "0", "--registry-token-file", "missing"], "cannot read missing"),
        (["start", "--cores", "2", "--registry", "0"], "--cores: what is done beside a node"),
        (["up", "--registry", ":x"], "expected [HOST:]PORT"),
    ],
)
def test_options_that_do_not_go(tmp_path: Path, words: list[str], why: str) -> None:
    done = kbroker(*words, cwd=tmp_path)
    assert done.returncode in (1, 2) and why in done.stderr and "Traceback" not in done.stderr
