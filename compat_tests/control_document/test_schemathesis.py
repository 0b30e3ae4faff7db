"""Schemathesis asks a control all that its document allows, and what it does not, on one node and on three.

It has an environment of its own, installed on first use: so this runs when asked for, by ``--works-with``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from compat_tests.works_with.program import Program, ProgramError
from tests.control_client import Control, command

FOLDER = Path(__file__).parent
SCHEMATHESIS = Program(FOLDER, "Schemathesis", "test tool", "https://schemathesis.io", "4.32.5", "", "", ())
EXAMPLES = 3
"""Of each verb; more find more, and take longer."""


@pytest.mark.parametrize(
    "words", [("start", "--data-dir", "data"), ("up", "-n", "3", "--data", "data")], ids=["1", "3"]
)
def test_the_document_is_what_is_served(words: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--works-with"):
        pytest.skip("Schemathesis is installed on first use, so this runs when asked for: --works-with")
    try:
        python = SCHEMATHESIS.python()
    except ProgramError as error:
        pytest.skip(f"Schemathesis cannot be had: {error}")
    with command(*words, "--port", "0", "--control", "0", cwd=tmp_path) as (_, at):
        asked = [str(python.with_name("st")), "--no-color", "--config-file", str(FOLDER / "schemathesis.toml")]
        asked += ["run", f"{at['control']}/openapi.json", "--phases", "fuzzing", "--request-timeout", "120"]
        asked += ["--max-examples", str(EXAMPLES)]
        environment = os.environ | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(FOLDER)}
        done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=3000)
        assert done.returncode == 0, done.stdout + done.stderr
        control = Control(at["control"])
        control.do("POST", "/reset")
        assert {node["state"] for node in control.do("GET", "/nodes")["nodes"]} == {"running"}
