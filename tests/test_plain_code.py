"""The package says nothing in a way that compilers of Python are known to misread."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kbroker

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
