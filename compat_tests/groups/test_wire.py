"""What the group APIs answer to wrong requests, version by version, compared with what Apache Kafka 4.3.1 answers.

``pytest compat_tests/groups --broker apache --record`` writes the answers of Apache Kafka anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat_tests.groups.wire_cases import answers

_EXPECTED = Path(__file__).parent / "wire_answers.json"


def test_answers_are_apache_kafkas(request: pytest.FixtureRequest, bootstrap: str) -> None:
    told = answers(bootstrap)
    if request.config.getoption("--record"):
        _EXPECTED.write_text(json.dumps(told, indent=1) + "\n")
    expected = json.loads(_EXPECTED.read_text())
    assert list(told) == list(expected)
    wrong = [
        f"{name}:\n  {told[name]}\n  Kafka: {expected[name]}" for name in expected if told[name] != expected[name]
    ]
    assert not wrong, "\n".join(wrong)
