"""The recipes of docs/records.md run as they stand."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from kbroker.client.properties import ClientProperties
from kbroker.config import parse_properties
from tests.cli_command import Run
from tests.page_node import page
from tests.schemas.registry_server import running_registry

_, BLOCKS = page("records.md")


def test_the_recipes(kb: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastavro")
    monkeypatch.chdir(tmp_path)
    [orders] = [text for language, text in BLOCKS if language == "json"]
    Path("orders.jsonl").write_text(orders)
    with running_registry() as registry:
        fields = [{"name": "weight", "type": "long"}]
        registry.add("parcels-value", json.dumps({"type": "record", "name": "Parcel", "fields": fields}))
        for topic in ("parcels", "heavy-parcels"):
            kb("topic", "create", topic, "-p", "1")
        Path("parcels").write_bytes(b"\0\0\0\0\1\x04\n\0\0\0\0\1\x08\n")
        kb("produce", "parcels", "parcels", "-q")
        outputs = {}
        for command in "".join(text for language, text in BLOCKS if language == "sh").splitlines():
            program, *words = shlex.split(command.replace("http://localhost:8081", registry.url))
            assert program == "kbroker"
            outputs[command.removeprefix("kbroker ")] = kb(*words).out
    assert len(outputs["consume orders --from -1h --to now"].splitlines()) == 3
    assert len(outputs["consume orders --latest-per-key --value-only"].splitlines()) == 2
    assert len(kb("consume", "orders-again").rows) == 3 + 2
    assert len(kb("consume", "retries").rows) == 1 + 3
    assert outputs["consume parcels --registry http://localhost:8081"].count('{"weight": ') == 2
    assert len(kb("consume", "heavy-parcels").rows) == 1


def test_the_properties_are_known(tmp_path: Path) -> None:
    [text] = [text for language, text in BLOCKS if language == "properties"]
    given = {name: value for name, value in parse_properties(text).items() if not name.startswith("config.providers")}
    assert ClientProperties(given).without_effect == ()
