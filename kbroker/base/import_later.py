"""Modules of others that are loaded with their first use, where Trio or the standard library imports them for few."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_lock = threading.RLock()


class _Later(ModuleType):
    """A module that is empty until somebody asks for a name of it."""

    def __getattr__(self, name: str) -> Any:
        with _lock:
            spec = self.__spec__
            if spec is not None and spec.loader is not None and spec.loader_state is None:
                spec.loader_state = "loaded"
                if spec.submodule_search_locations is not None:
                    self.__path__ = spec.submodule_search_locations
                try:
                    spec.loader.exec_module(self)
                except BaseException:
                    spec.loader_state = None
                    raise
        return object.__getattribute__(self, name)


def import_later(*names: str) -> None:
    """Have modules be imported with the first use of one of their names; ``import NAME`` alone is none.

    Unlike ``importlib.util.LazyLoader``, whose modules the second ``import NAME`` loads.
    """
    for name in names:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            sys.modules[name] = module = module_from_spec(spec)
            module.__class__ = _Later
            vars(module).pop("__path__", None)  # asked for before a submodule is imported, which needs the package
