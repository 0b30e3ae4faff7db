"""A rule is found by its name; an error says why one cannot be had."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import FatalError
from kbroker.rules.loading import call_of, described, load

RULES = """
class Rules:
    made = 0
    def __init__(self):
        Rules.made += 1
    def authorize(self, action):
        return True

class Broken:
    def __init__(self):
        raise OSError("no such policy")

class Inner:
    rules = Rules()

def function(action):
    return False

number = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_rules.py"
    path.write_text(RULES)
    return path


def loaded(text: str) -> Any:
    return load("authorizer.class.name", text, "authorize")


def test_functions_classes_and_objects_by_file(file: Path) -> None:
    assert loaded(f"python:{file}:function")(None) is False
    rules = loaded(f"python:{file}:Rules")
    assert call_of(rules, "authorize")(None) is True
    assert loaded(f"python:{file}:Inner.rules").authorize(None) is True


def test_a_file_is_loaded_once_and_its_directory_is_not_searched(file: Path) -> None:
    import sys

    assert loaded(f"python:{file}:function") is loaded(f"python:{file}:function")
    assert str(file.parent) not in sys.path


def test_a_module_of_the_path(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    assert loaded("python:my_rules:function").__module__ == "my_rules"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("python:no_such_rules:f", "there is no module no_such_rules: is its directory in PYTHONPATH"),
        ("python:os.no_such:f", "there is no module os.no_such"),
        ("python:{file}:absent", "there is no absent in "),
        ("python:{file}:Broken", r"Broken\(\) fails: OSError: no such policy \(.*my_rules.py, line 11\)"),
        ("python:{file}:number", "it cannot be called, and has no method authorize"),
        ("python:{file}x:f", "No such file or directory"),
    ],
)
def test_what_cannot_be_had_is_told_in_one_line(file: Path, name: str, said: str) -> None:
    with pytest.raises(FatalError, match=f"^authorizer.class.name=python:.*{said}") as caught:
        loaded(name.replace("{file}", str(file)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = (", r"SyntaxError: .* line 2"),
        ("import no_such_library\n", r"ModuleNotFoundError: No module named 'no_such_library' \(.*wrong.py, line 1\)"),
        ("def f():\n    1 / 0\nf()\n", r"ZeroDivisionError: division by zero \(.*wrong.py, line 2\)"),
        ("raise SystemExit(3)\n", r"SystemExit: 3 \(.*wrong.py, line 1\)"),
        ("raise ValueError('a\\nb')\n", "ValueError: a"),
    ],
)
def test_an_import_that_fails_names_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(FatalError, match=f"it cannot be imported: .*{said}") as caught:
        loaded(f"python:{path}:f")
    assert "\n" not in str(caught.value)
    path.write_text("def f(action): return True\n")
    assert loaded(f"python:{path}:f")(None) is True  # nothing of the failed import is left


def test_a_file_that_everybody_may_write_to_is_not_run(file: Path) -> None:
    file.chmod(0o666)
    with pytest.raises(FatalError, match="everybody may write to"):
        loaded(f"python:{file}:function")


def test_a_secret_in_an_errors_text_can_be_left_out() -> None:
    try:
        raise ValueError("geheim")
    except ValueError as error:
        assert "geheim" in described(error)
        assert described(error, with_text=False).startswith(f"ValueError ({os.path.abspath(__file__)}, line ")
