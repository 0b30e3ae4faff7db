"""Named tuples and dataclasses that cost little to declare: a launch declares more than a hundred.

``NamedTuple``, ``dataclass``, ``field`` and ``replace`` are used like those of ``typing`` and ``dataclasses``, and type
checkers take them for those. The standard library compiles code for each field of a named tuple and for six methods of
a dataclass; here a class gets a compiled constructor with its first instance, and shares everything else.

A module that a node imports when it starts takes them from here. Less is possible than there: a dataclass has
``slots=True``, and its bases are no dataclasses of the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Never

if TYPE_CHECKING:
    from dataclasses import Field, dataclass, field, replace
    from typing import NamedTuple

__all__ = ["LazyDataclassFields", "NamedTuple", "dataclass", "field", "replace"]

try:
    from _collections import _tuplegetter  # type: ignore[import-not-found]
except ImportError:  # pragma: no cover - not CPython

    def _tuplegetter(index: int, doc: str) -> property:
        return property(itemgetter(index), doc=doc)


_MISSING: Any = object()

# The standard library changed the error of ``_replace`` with Python 3.13.
_UNEXPECTED_FIELD: type[Exception] = TypeError if sys.version_info >= (3, 13) else ValueError


def _compiled(cls: type[Any], name: str, parameters: Iterable[str], body: str, values: dict[str, object]) -> Any:
    """The function ``name`` of a class; its code may use ``values``."""
    namespace = {"__name__": cls.__module__, **values}
    exec(compile(f"def {name}({', '.join(parameters)}):\n{body}", f"<{cls.__name__}.{name}>", "exec"), namespace)
    function: Any = namespace[name]
    function.__qualname__ = f"{cls.__qualname__}.{name}"
    return function


# Named tuples


class _TupleMethods(tuple[Any, ...]):
    """The methods that all named tuples share."""

    __slots__ = ()
    _fields: tuple[str, ...]

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise _UNEXPECTED_FIELD(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({inner})"


class _TupleMaker(type):
    """Makes the class that a ``class X(NamedTuple)`` declares; its own type is ``type``."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        names = tuple(namespace.get("__annotations__", ()))
        defaults = {key: namespace[key] for key in names if key in namespace}
        if names[len(names) - len(defaults) :] != tuple(defaults):
            raise TypeError(f"{name}: a field without a default comes after one with a default")
        namespace.update({key: _tuplegetter(index, "") for index, key in enumerate(names)})
        namespace |= {"__slots__": (), "__match_args__": names, "_fields": names, "_field_defaults": defaults}

        def first_new(cls: type[Any], /, *args: Any, **kwargs: Any) -> Any:
            """The constructor of a class without instances yet: replaces itself by a compiled one."""
            made.__new__ = _constructor_of_tuple(made)
            return made.__new__(cls, *args, **kwargs)

        namespace["__new__"] = first_new
        made: Any = type(name, tuple(_TupleMethods if base is _Declared else base for base in bases), namespace)
        return made


_Declared = type.__new__(_TupleMaker, "NamedTuple", (), {})


@cache
def _code_of_tuple(count: int) -> CodeType:
    names = [f"field_{number}" for number in range(count)]
    body = f" return __tuple_new__(_cls, ({''.join(f'{name}, ' for name in names)}))"
    code: CodeType = _compiled(tuple, "__new__", ["_cls", *names], body, {}).__code__
    return code


def _constructor_of_tuple(cls: type[Any]) -> Any:
    # Compiled once for all that have as many fields.
    code = _code_of_tuple(len(cls._fields)).replace(co_varnames=("_cls", *cls._fields))
    values = {"__name__": cls.__module__, "__tuple_new__": tuple.__new__}
    function = FunctionType(code, values, "__new__", tuple(cls._field_defaults.values()))
    function.__qualname__ = f"{cls.__qualname__}.__new__"
    return function


# Dataclasses


class _Field:
    """The arguments of ``field()``."""

    __slots__ = ("default", "default_factory", "init", "repr")

    def __init__(
        self, *, default: Any = _MISSING, default_factory: Any = _MISSING, init: bool = True, repr: bool = True
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr


class LazyDataclassFields:
    """Makes ``dataclasses.fields`` and what builds on it work, at no cost until then.

    ``describe`` gives a class's fields as ``dataclasses.make_dataclass`` takes them.
    """

    __slots__ = ("_describe",)

    def __init__(self, describe: Callable[[type[Any]], Iterable[tuple[str, Any, Any]]]) -> None:
        self._describe = describe

    def __get__(self, instance: object, owner: type[Any]) -> dict[str, Field[Any]]:
        import dataclasses

        model = dataclasses.make_dataclass(owner.__name__, self._describe(owner), kw_only=True)
        fields: dict[str, Field[Any]] = model.__dict__["__dataclass_fields__"]
        owner.__dataclass_fields__ = fields
        return fields


def _standard_fields(cls: type[Any]) -> Iterable[tuple[str, Any, Any]]:
    import dataclasses

    for name, declared in cls.__declared__.items():
        options = {"default": declared.default, "default_factory": declared.default_factory}
        given = {key: value for key, value in options.items() if value is not _MISSING}
        yield name, Any, dataclasses.field(init=declared.init, repr=declared.repr, **given)


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__values__
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__values__(self))


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, declared in self.__declared__.items() if declared.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _setattr(self: object, name: str, value: object) -> Never:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> Never:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _first_init(self: Any, /, *args: Any, **kwargs: Any) -> None:
    """The constructor of a class without instances yet: replaces itself by a compiled one."""
    cls = type(self)
    cls.__init__ = _constructor_of_dataclass(cls)
    cls.__init__(self, *args, **kwargs)


def _constructor_of_dataclass(cls: type[Any]) -> Any:
    assign = " __put__(self, {0!r}, {1})" if cls.__dict__.get("__setattr__") is _setattr else " self.{0} = {1}"
    values: dict[str, object] = {"__missing__": _MISSING, "__put__": object.__setattr__}
    parameters, body = ["self"], []
    for name, declared in cls.__declared__.items():
        if not declared.init:
            continue  # __post_init__ sets it
        value = parameter = name
        if declared.default_factory is not _MISSING:
            values[f"make_{name}"] = declared.default_factory
            parameter, value = f"{name}=__missing__", f"make_{name}() if {name} is __missing__ else {name}"
        elif declared.default is not _MISSING:
            values[f"default_{name}"] = declared.default
            parameter = f"{name}=default_{name}"
        parameters.append(parameter)
        body.append(assign.format(name, value))
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    return _compiled(cls, "__init__", parameters, "\n".join(body) or " pass", values)


def _make(cls: type[Any], *, frozen: bool, init: bool, eq: bool, repr: bool) -> type[Any]:
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063  # inspect costs a millisecond
    declared: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        declared |= base.__dict__.get("__declared__", {})
        if "__dataclass_fields__" in base.__dict__ and (
            "__declared__" not in base.__dict__ or frozen != ("__setattr__" in base.__dict__)
        ):
            raise TypeError(f"{cls.__qualname__}: a dataclass of another kind among the bases")
    for name in annotations:
        value = cls.__dict__.get(name, _MISSING)
        declared[name] = value if value.__class__ is _Field else _Field(default=value)
        if declared[name].default.__class__.__hash__ is None:
            raise TypeError(f"{cls.__qualname__}.{name}: a mutable default; use default_factory")
    namespace = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in annotations and name not in ("__dict__", "__weakref__")
    }
    names = tuple(declared)
    namespace |= {
        "__slots__": tuple(annotations),
        "__match_args__": tuple(name for name in names if declared[name].init),
        "__qualname__": cls.__qualname__,
        "__declared__": declared,
        "__dataclass_fields__": LazyDataclassFields(_standard_fields),
    }
    if init:
        namespace["__init__"] = _first_init
    if repr:
        namespace.setdefault("__repr__", _repr)
    if eq:
        namespace["__values__"] = attrgetter(*names)
        namespace.setdefault("__eq__", _eq)
        if namespace.get("__hash__") is None:
            namespace["__hash__"] = _hash if frozen else None
    if frozen:
        namespace |= {"__setattr__": _setattr, "__delattr__": _delattr}
    make: Any = type(cls)
    made: type[Any] = make(cls.__name__, cls.__bases__, namespace)
    return made


if not TYPE_CHECKING:
    NamedTuple = _Declared
    field = _Field

    def dataclass(
        *, slots: bool, frozen: bool = False, init: bool = True, eq: bool = True, repr: bool = True
    ) -> Callable[[type], type]:
        """A class decorator, like ``dataclasses.dataclass``; ``slots`` must be true."""
        if not slots:
            raise TypeError("slots=True is missing")
        return lambda cls: _make(cls, frozen=frozen, init=init, eq=eq, repr=repr)

    def replace(obj: Any, /, **changes: object) -> Any:
        """A copy of a dataclass with some fields changed, like ``dataclasses.replace``."""
        for name in obj.__match_args__:
            if name not in changes:
                changes[name] = getattr(obj, name)
        return obj.__class__(**changes)
