"""Modules that are loaded with their first use."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from kbroker.base.import_later import import_later
from tests.patience import LONG

NAME = "module_for_later"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module that nobody has imported."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / f"{NAME}.py"
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_a_module_is_loaded_by_the_first_use_of_a_name_and_not_by_imports(source: Path) -> None:
    source.write_text("loads = [*globals().get('loads', ()), 1]\nown = hasattr(__import__(__name__), 'missing')\n")
    import_later(NAME, "no_module_of_this_name")
    for _ in range(2):
        module = import_module(NAME)
        exec(f"import {NAME}")
    assert "loads" not in vars(module)
    assert module.loads == [1] and not module.own
    with pytest.raises(AttributeError, match="missing"):
        _ = module.missing
    import_later(NAME)
    assert sys.modules[NAME] is module and module.loads == [1]


def test_a_module_that_cannot_be_loaded_is_tried_again(source: Path) -> None:
    source.write_text("import no_module_of_this_name\n")
    import_later(NAME)
    module = import_module(NAME)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_module_of_this_name"):
            _ = module.x


def test_a_package_is_loaded_before_its_submodules(source: Path) -> None:
    package = source.with_suffix("")
    package.mkdir()
    (package / "__init__.py").write_text("from .part import value as both\n")
    (package / "part.py").write_text("from . import other\nvalue = other.value\n")
    (package / "other.py").write_text("value = 7\n")
    import_later(NAME)
    part = import_module(f"{NAME}.part")
    assert part.value == import_module(NAME).both == 7


def test_who_asks_meanwhile_waits_until_the_module_is_loaded(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "held", cast("ModuleType", SimpleNamespace(begun=begun, go=go)))
    source.write_text("import held\nheld.begun.set()\nheld.go.wait()\nx = 7\n")
    import_later(NAME)
    module = import_module(NAME)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(module.x)) for _ in range(2)]
    threads[0].start()
    assert begun.wait(LONG)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(LONG)
    assert found == [7, 7]
