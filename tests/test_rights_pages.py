"""docs/security/authorization.md and quotas.md: their commands are run, against a node with an authorizer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.config.properties_file import parse_properties
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.cli import main

SECURITY = Path(__file__).parents[1] / "docs" / "security"

Run = Callable[[str], str]


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language."""
    text = (SECURITY / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A node with the authorizer of the page; its clients are nobody in particular, and may do everything."""
    (switched_on,) = blocks("authorization.md", "properties")
    with running_broker(parse_properties(switched_on) | {"super.users": "User:ANONYMOUS"}) as running:
        yield running


@pytest.fixture
def run(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run one line of a block as it stands, in a directory with the administrator's file; its output."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    Path("admin.properties").write_text("security.protocol=PLAINTEXT\n")

    def run(line: str) -> str:
        command, *words = shlex.split(line.replace("localhost:9092", broker.bootstrap_servers))
        assert command == "kbroker"
        capsys.readouterr()
        assert main(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def test_quotas_are_set_listed_and_removed(run: Run) -> None:
    block, _ = blocks("quotas.md", "sh")
    *_, listing, removal = block.splitlines()
    told = [run(line) for line in block.splitlines()]
    assert re.search(r"^alice +producer_byte_rate +1000000$", told[-2], re.MULTILINE)
    assert "10.0.0.7" in run(listing) and "alice" not in run(listing)
    assert removal == "kbroker quota delete --user alice"


def test_acls_are_added_and_listed_and_the_audit_log_made_louder(run: Run) -> None:
    ours, _, louder = blocks("authorization.md", "sh")
    told = [run(line) for line in ours.splitlines()]
    assert "User:alice" in told[-1] and "User:bob" in told[-1] and "shop." in told[-1]
    assert run(louder) == "broker-logger 1: kbroker.authorizer set to DEBUG\n"
    run("kbroker config unset broker-logger 1 kbroker.authorizer")
