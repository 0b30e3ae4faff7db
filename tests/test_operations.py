"""docs/operations.md explains every warning and error that a node can log, and every reason for which it ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = " ".join((ROOT / "docs" / "operations.md").read_text("utf-8").split())
LEVELS = {"warning", "error", "exception", "critical"}
OF_NODES = (
    "node",
    "log",
    "raft_metadata",
    "rules",
    "runtime",
    "tools.cli.storage",
    "tools.cli.container",
    "tools.cli.node_per_core",
    "tools.cli.data_owners",
)
"""Where a FatalError concerns a node; those of the configuration name the property, those of commands are answers."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """The code that runs in a node: all but what tests and simulates it."""
    for path in sorted((ROOT / "kbroker").rglob("*.py")):
        text = path.read_text("utf-8")
        is_of_nodes = {"testing", "sim", "console"}.isdisjoint(path.relative_to(ROOT / "kbroker").parts)
        if is_of_nodes and re.search(r"\blog(ger)?\.|FatalError|LogDirFailure", text):
            yield path, ast.parse(text)


def template(node: ast.expr, constants: dict[str, str]) -> str:
    """The text that an expression makes, with … for each value that is not known here."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if name in constants:
            return constants[name]
        case ast.JoinedStr(values=parts):
            return "".join(template(part, constants) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left, constants) + template(right, constants)
        case ast.Call(func=ast.Attribute(value=ast.JoinedStr() as text, attr="replace")):
            return template(text, constants)
        case _:
            return "…"


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """(what is called, the call): the level of a logger, or the name of an exception's class."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "log"), attr=level)) if level in LEVELS:
                yield level, node
            case ast.Call(func=ast.Name(id="FatalError" | "LogDirFailure")):
                yield "FatalError", node


@cache
def messages() -> list[tuple[str, str, str]]:
    """(module, what is called, the message with … for its values)."""
    found = []
    for path, tree in modules():
        parts = path.relative_to(ROOT).with_suffix("").parts
        constants = {target.id: value for node in tree.body for target, value in _assigned(node)}
        for kind, call in calls(tree):
            module = ".".join(parts[1:])
            if kind == "FatalError" and not any(f"{module}.".startswith(f"{name}.") for name in OF_NODES):
                continue
            text = template(call.args[0], constants) if call.args else "…"
            found.append((".".join(parts), kind, " ".join(re.sub(r"%[-+0-9.]*[a-z]", "…", text).split())))
    return found


def _assigned(node: ast.stmt) -> Iterator[tuple[ast.Name, str]]:
    match node:
        case ast.Assign(targets=[ast.Name() as name], value=ast.Constant(value=str(text))):
            yield name, text


def test_every_message_of_a_node_is_explained() -> None:
    """When this fails: say in docs/operations.md what the message means and what to do."""
    found = messages()
    assert len(found) > 90
    missing = []
    for module, kind, text in found:
        if re.search(r"[a-z]{2}", text):
            if f"`{text}`" not in PAGE:
                missing.append((module, text))
        elif kind != "FatalError" and f"`{module}`" not in PAGE:  # the text is somebody else's: look by the logger
            missing.append((module, text))
    assert missing == []


def test_the_page_explains_no_message_that_is_gone() -> None:
    known = {text for _, _, text in messages()}
    shown = {text for text in re.findall(r"- `([^`]+)`", PAGE) if "kbroker." not in text}
    assert shown - known == set()
