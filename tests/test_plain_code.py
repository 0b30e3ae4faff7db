"""The package says nothing in a way that compilers of Python are known to misread."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbroker

TESTS = Path(__file__).parent
PACKAGE = Path(kbroker.__file__).parent


def nodes(text: str) -> Iterator[tuple[str, ast.AST]]:
    """Yields what stands in the modules that have such a text, and its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        code = path.read_text("utf-8")
        if re.search(text, code):
            for node in ast.walk(ast.parse(code)):
                yield f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}", node


def test_nothing_is_cut_by_a_call_that_uses_it_while_it_is_assigned() -> None:
    """``rest = rest[write(rest) :]`` reads ``rest`` twice, and forgets it: the call stands in a line of its own."""
    found = []
    for place, node in nodes(r"\b([\w.]+) = (.* = )?\(?\s*\1\["):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            cut = ast.unparse(node.value.value)
            calls = [part for part in ast.walk(node.value.slice) if isinstance(part, ast.Call)]
            is_used = any(ast.unparse(argument) == cut for call in calls for argument in call.args)
            if is_used and cut in map(ast.unparse, node.targets):
                found.append(place)
    assert found == []


def test_no_dictionary_has_methods_of_its_own_in_place_of_the_usual() -> None:
    """A compiler that knows a ``dict`` calls the methods of ``dict``, whatever a subclass has."""
    found = [
        f"{place} {node.name}.{part.name}"
        for place, node in nodes(r"class [^:]*\bdict\b")
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).split("[")[0] == "dict" for base in node.bases)
        for part in node.body
        if isinstance(part, ast.FunctionDef) and part.name != "__init__" and part.name in dir(dict)
    ]
    assert found == []


def test_no_test_patches_a_constant_or_a_default() -> None:
    """Time budgets and sizes are arguments with defaults, or of `kbroker.runtime.budgets`: a test gives others.

    Mistakes that are planted into the simulation are what the constants say.
    """
    found = [
        f"{path.relative_to(TESTS.parent)}:{getattr(node, 'lineno', 0)} {name}"
        for path in sorted([*TESTS.rglob("*.py"), *(TESTS.parent / "compat_tests").rglob("*.py")])
        if path != TESTS / "sim" / "test_cluster_simulation.py" and re.search(_SET, code := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(code))
        if (name := _patched(node))
    ]
    assert found == []


PATCHES = {
    "tests/sim/test_cluster_simulation.py": "plants mistakes",
    "tests/sim/test_raft_simulation.py": "plants mistakes",
    "tests/test_testing_link.py": "says what nodes tell of themselves, and when",
    "tests/explorer/test_tap.py": "counts who looks through a queue",
    "tests/node/test_delegation_tokens.py": "has a session be renewed within a second",
    "compat_tests/cluster/wires.py": "plans a node's ports anew",
    "compat_tests/kafka_python/client.py": "mends what kafka-python forgets",
    "compat_tests/line_driver.py": "copies itself",
}


def test_no_test_replaces_a_private_part() -> None:
    """A part is given to whoever uses it, or a public name is patched; but for `PATCHES`, each with its reason."""
    found = {
        str(path.relative_to(TESTS.parent)): match[0].strip()
        for path in sorted([*TESTS.rglob("*.py"), *(TESTS.parent / "compat_tests").rglob("*.py")])
        if (match := _REPLACED.search(path.read_text("utf-8"))) and path != Path(__file__)
    }
    assert found.keys() - PATCHES.keys() == set(), found
    assert PATCHES.keys() - found.keys() == set(), "these need no exception any more"


_REPLACED = re.compile(
    r"""setattr\(\s*(?:[^,"]+,\s*"_[a-z]|"[\w.]*\._[a-z])"""
    r"""|^[ ]*(?!(?:self|cls)\._\w+[ ,])[\w.()\[\]]+\._[a-z]\w*(?:,[^=\n]*)? = """,
    re.MULTILINE,
)

_NAME = r"(_?[A-Z][A-Z0-9_]+|__(kw)?defaults__)"
_SET = rf"\bsetattr\(|\.{_NAME} = "


def _patched(node: ast.AST) -> str | None:
    """Returns the constant or the default that is set here."""
    names: list[str] = []
    if isinstance(node, ast.Call) and re.search(r"\bsetattr$", ast.unparse(node.func)):
        texts = [part.value for part in node.args[:2] if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        names = [text.rpartition(".")[2] for text in texts[-1:]]
    elif isinstance(node, ast.Assign):
        names = [target.attr for target in node.targets if isinstance(target, ast.Attribute)]
    return next((name for name in names if re.fullmatch(_NAME, name)), None)


@pytest.mark.parametrize(
    "text",
    ['patch.setattr(module, "MOST", 1)', 'setattr("kbroker.x._LIMIT_2", 1)', "f.__defaults__ = ()", "x.m.SECONDS = 1"],
)
def test_what_is_patched_is_seen(text: str) -> None:
    assert any(map(_patched, ast.walk(ast.parse(text))))


def test_what_is_replaced_is_seen() -> None:
    replaced = ['patch.setattr(A.b, "_c", d)', 'setattr("kbroker.x._y", 1)', "node._plan = 1", "self._a._b = 1"]
    assert all(map(_REPLACED.search, [*replaced, "    first.x()._y, z = 1, 2"]))
    assert not any(map(_REPLACED.search, ["self._a = 1", "self._a, self._b = 1, 2", "x = y._z", "f(x._y == 1)"]))
