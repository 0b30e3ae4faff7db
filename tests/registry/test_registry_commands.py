"""The commands that have a registry, and their options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker.testing import running_broker
from tests.control_client import ENVIRONMENT, Control
from tests.patience import LONG
from tests.registry.registry_client import Asked

pytestmark = pytest.mark.slow


@contextmanager
def command(*words: str, cwd: Path) -> Iterator[dict[str, str]]:
    """``kbroker`` until the end of the block: what it tells before it is ready, by what it is about."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker", *words], cwd=cwd, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        told: dict[str, str] = {}
        for line in process.stdout:
            what, _, rest = line.strip().partition(": ")
            told[what.removeprefix("kbroker ")] = rest
            if "ready" in told:
                break
        yield told
    finally:
        process.terminate()
        assert process.wait(2 * LONG) == 0
        process.stdout.close()


def test_kbroker_start(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    words = ["start", "--port", "0", "--registry", "0.0.0.0:0", "--registry-token-file", "token"]
    with command(*words, "--control", "0", cwd=tmp_path) as told:
        url = told["registry"].replace("0.0.0.0", "127.0.0.1")
        ask = Asked(url, {"Authorization": "Bearer s3cret"})
        known = ask.register("a", '"string"')
        assert Asked(url).error("GET", "/subjects")[0] == 401
        assert Control(told["control"]).do("GET", "/")["registry_url"] == told["registry"]
    with command("start", "--port", "0", "--registry", "0", cwd=tmp_path) as told:
        ask = Asked(told["registry"])
        assert ask("GET", "/subjects") == ["a"] and ask.register("b", '"string"') == known
        run = [sys.executable, "-m", "kbroker", "topic", "describe", "_schemas", "-b", told["ready"]]
        assert "compact" in subprocess.run(run, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("also", [("--control", "0"), ("--secure",)], ids=["control", "secure"])
def test_kbroker_up(tmp_path: Path, also: tuple[str, ...]) -> None:
    with command("up", "-n", "3", "--port", "0", "--registry", "0", *also, cwd=tmp_path) as told:
        ask = Asked(told["registry"])
        assert ask.register("a", '"string"') == 1 and ask("GET", "/subjects") == ["a"]
        if "control" in told:
            assert Control(told["control"]).do("GET", "/")["registry_url"] == told["registry"]


def test_a_registry_behind_a_secure_listener(tmp_path: Path) -> None:
    with running_broker(security="sasl_plaintext", super_users=["admin"]) as broker:
        properties = dict(broker.config.raw) | {"log.dirs": str(tmp_path / "data"), "listeners": ""}
    properties["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    (tmp_path / "node.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=admin password=admin-secret;"
    (tmp_path / "admin.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
    )
    base = [sys.executable, "-m", "kbroker"]
    format_words = [*base, "format", "--standalone", "-t", "x" * 22, "-c", "node.properties"]
    subprocess.run(format_words, cwd=tmp_path, env=ENVIRONMENT, check=True)
    words = ["start", "-c", "node.properties", "--registry", "0", "--registry-config", "admin.properties"]
    with command(*words, cwd=tmp_path) as told:
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
    run = [sys.executable, "-m", "kbroker", *words]
    done = subprocess.run(run, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=LONG)
    assert done.returncode in (1, 2) and why in done.stderr and "Traceback" not in done.stderr
