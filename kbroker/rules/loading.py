"""The rules that a node's file names: ``python:MODULE:NAME``, or ``python:/absolute/file.py:NAME``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import stat
import sys
import traceback
from types import ModuleType
from typing import Any

from kbroker.config.security.rules import PREFIX
from kbroker.errors import FatalError
from kbroker.security.shown import shown


def load(property_name: str, text: str, method: str) -> Any:
    """The callable or object that ``text`` names, with the method if it is an object. A class is called for one.

    ``FatalError`` in one line, with the place in the user's file where that is known.
    """
    module_name, _, name = text.removeprefix(PREFIX).rpartition(":")
    where = f"{property_name}={text}"
    found: Any = _module(where, module_name)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise FatalError(f"{where}: there is no {part} in {shown(module_name)}") from None
    if inspect.isclass(found):
        try:
            found = found()
        except BaseException as error:
            raise FatalError(f"{where}: {found.__name__}() fails: {described(error)}") from None
    if not callable(getattr(found, method, None)) and not callable(found):
        raise FatalError(f"{where}: it cannot be called, and has no method {method}")
    return found


def call_of(rule: object, method: str) -> Any:
    """The callable of a rule: its method, or itself."""
    found = getattr(rule, method, None)
    return found if callable(found) else rule


def _module(where: str, name: str) -> ModuleType:
    try:
        return _module_of_file(where, name) if "/" in name else importlib.import_module(name)
    except FatalError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = "is its directory in PYTHONPATH? A file may be named by its absolute path instead"
            raise FatalError(f"{where}: there is no module {shown(name)}: {hint}") from None
        raise FatalError(f"{where}: it cannot be imported: {described(error)}") from None
    except BaseException as error:
        raise FatalError(f"{where}: it cannot be imported: {described(error)}") from None


def _module_of_file(where: str, path: str) -> ModuleType:
    """The module in a file, the same for all properties that name it. Nothing is put into ``sys.path``."""
    known = sys.modules.get(_module_name(path))
    if known is not None:
        return known
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise FatalError(f"{where}: {error.strerror}: {path}") from None
    if mode & stat.S_IWOTH:
        raise FatalError(f"{where}: everybody may write to {path}, so anybody could make the rules; chmod o-w {path}")
    spec = importlib.util.spec_from_file_location(_module_name(path), path)
    if spec is None or spec.loader is None:
        raise FatalError(f"{where}: {path} is no file of Python: its name does not end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _module_name(path: str) -> str:
    return f"kbroker rules in {os.path.realpath(path)}"


def described(error: BaseException, *, with_text: bool = True) -> str:
    """An error in one line, with the place in the user's code. Without its text where that may have a secret."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # of a Trio nursery
    text = f"{type(error).__name__}: {error}" if with_text and str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename is not None:
        return shown(f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})", 500)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_HERE, "<frozen importlib")) and os.sep + "importlib" not in frame.filename
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return shown(f"{text}{place}", 500)


def told(error: Exception) -> str:
    """The text of a refusal, as a client may be sent it."""
    return str(error)[:_MOST_TOLD].encode("utf-8", "backslashreplace").decode("utf-8")


_MOST_TOLD = 1000
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
