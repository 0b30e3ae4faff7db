"""``kbroker.value_types`` behaves like ``typing`` and ``dataclasses``, and a launch uses nothing else."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest

from kbroker import value_types

T = TypeVar("T")

STANDARD = SimpleNamespace(
    NamedTuple=typing.NamedTuple, dataclass=dataclasses.dataclass, field=dataclasses.field, replace=dataclasses.replace
)


def outcome(call: Callable[[Any], object], cls: Any) -> object:
    """The result of a call as text, or the type of its error."""
    try:
        return repr(call(cls))
    except Exception as error:
        return type(error)


def tuple_class(library: Any) -> Any:
    """A named tuple with a default, a method and a type parameter."""

    class Pair(library.NamedTuple, Generic[T]):  # type: ignore[misc]
        key: str
        value: T
        cls: int = 7

        def text(self) -> str:
            return f"{self.key}={self.value}"

    return Pair


def data_class(library: Any) -> Any:
    """A frozen dataclass with each kind of field."""

    @library.dataclass(frozen=True, slots=True)
    class Entry(Generic[T]):
        name: str
        secret: T = library.field(repr=False)
        tags: list[str] = library.field(default_factory=list)
        size: int = 3
        doubled: int = library.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "doubled", 2 * self.size)

    return Entry


def mutable_class(library: Any) -> Any:
    """A dataclass whose fields change."""

    @library.dataclass(slots=True)
    class Counter:
        count: int = 0

    return Counter


def child_class(library: Any) -> Any:
    """A dataclass that adds fields to those of another."""

    @library.dataclass(slots=True, eq=False)
    class Base(Generic[T]):
        name: str
        values: list[T] = library.field(default_factory=list)

    @library.dataclass(slots=True)
    class Child(Base[int]):
        size: int = 3

    return Child


TUPLE_CALLS: tuple[Callable[[Any], object], ...] = (
    lambda cls: cls("a", 1),
    lambda cls: cls(value=1, key="a", cls=2),
    lambda cls: cls("a"),
    lambda cls: cls("a", 1, 2, 3),
    lambda cls: cls("a", 1, other=2),
    lambda cls: cls("a", 1).text(),
    lambda cls: cls[int]("a", 1).value,
    lambda cls: cls("a", 1) == ("a", 1, 7),
    lambda cls: hash(cls("a", 1)) == hash(("a", 1, 7)),
    lambda cls: cls("a", 1)._replace(value=2),
    lambda cls: cls("a", 1)._replace(other=2),
    lambda cls: cls._make(["a", 1, 2]),
    lambda cls: cls._make(["a"]),
    lambda cls: cls("a", 1)._asdict(),
    lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__, type(cls)),
    lambda cls: setattr(cls("a", 1), "key", "b"),
    lambda cls: setattr(cls("a", 1), "other", "b"),
)

DATACLASS_CALLS: tuple[Callable[[Any], object], ...] = (
    lambda cls: cls("a", 1),
    lambda cls: cls("a", 1, ["x"], size=4).doubled,
    lambda cls: cls("a"),
    lambda cls: cls("a", 1, other=2),
    lambda cls: cls("a", 1).tags is cls("a", 1).tags,
    lambda cls: cls("a", 1) == cls("a", 1),
    lambda cls: cls("a", 1) == cls("a", 2),
    lambda cls: cls("a", 1) == ("a", 1, [], 3, 6),
    lambda cls: hash(cls("a", 1, ())) == hash(cls("a", 1, ())),
    lambda cls: hash(cls("a", 1)),
    lambda cls: setattr(cls("a", 1), "name", "b"),
    lambda cls: delattr(cls("a", 1), "name"),
    lambda cls: dataclasses.replace(cls("a", 1), size=5).doubled,
    lambda cls: dataclasses.asdict(cls("a", 1)),
    lambda cls: [(field.name, field.init, field.repr) for field in dataclasses.fields(cls)],
    lambda cls: cls.__match_args__,
)

MUTABLE_CALLS: tuple[Callable[[Any], object], ...] = (
    lambda cls: cls(),
    lambda cls: hash(cls()),
    lambda cls: setattr(cls(), "count", 2),
    lambda cls: setattr(cls(), "other", 2),
    lambda cls: cls() == cls(0),
)

CHILD_CALLS: tuple[Callable[[Any], object], ...] = (
    lambda cls: cls("a", [1], 2),
    lambda cls: cls("a", size=4),
    lambda cls: cls(),
    lambda cls: cls("a") == cls("a", []),
    lambda cls: cls("a") == cls("b"),
    lambda cls: cls.__mro__[1]("a"),
    lambda cls: dataclasses.replace(cls("a"), name="b"),
    lambda cls: dataclasses.asdict(cls("a", [1])),
    lambda cls: (cls.__match_args__, cls.__slots__),
)


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (tuple_class, TUPLE_CALLS),
        (data_class, DATACLASS_CALLS),
        (mutable_class, MUTABLE_CALLS),
        (child_class, CHILD_CALLS),
    ],
    ids=["tuple", "frozen", "mutable", "child"],
)
def test_it_behaves_like_the_standard_library(make: Callable[[Any], Any], calls: tuple[Any, ...]) -> None:
    for number, call in enumerate(calls):
        # A class of its own for each call: the constructor is compiled with the first instance.
        expected = outcome(call, make(STANDARD))
        declared = make(value_types)
        assert [outcome(call, declared) for _ in range(2)] == [expected] * 2, number


def test_replace_changes_the_named_fields() -> None:
    entry = data_class(value_types)("a", 1)
    assert value_types.replace(entry, size=5) == data_class_copy(entry, size=5)
    with pytest.raises(TypeError):
        value_types.replace(entry, other=1)


def data_class_copy(entry: Any, **changes: object) -> Any:
    """The copy that the standard library makes."""
    return dataclasses.replace(entry, **changes)


def test_what_is_not_supported_is_refused() -> None:
    with pytest.raises(TypeError, match="slots=True"):
        value_types.dataclass(slots=False)
    with pytest.raises(TypeError, match="mutable default"):

        @value_types.dataclass(slots=True)
        class Shared:
            names: list[str] = []  # noqa: RUF012

    with pytest.raises(TypeError, match="among the bases"):

        @value_types.dataclass(slots=True)
        class Child(mutable_class(STANDARD)):  # type: ignore[misc]
            name: str = ""

    with pytest.raises(TypeError, match="among the bases"):

        @value_types.dataclass(slots=True, frozen=True)
        class FrozenChild(mutable_class(value_types)):  # type: ignore[misc]
            name: str = ""

    with pytest.raises(TypeError, match="without a default"):

        class Reversed(value_types.NamedTuple):
            first: int = 0
            second: str  # type: ignore[misc]


def test_a_node_declares_its_classes_here() -> None:
    """An idle node has imported these classes: each of the standard library's would cost time and memory."""
    program = (
        "import sys, typing\n"
        "from kbroker.tools.cli import start\n"
        "import kbroker.node.broker, kbroker.node.coordinators.coordinators, kbroker.node.logs.log_cleaner\n"
        "import kbroker.cores.groups.group_coordinator\n"
        "modules = [module for name, module in sys.modules.items() if name.startswith('kbroker.')]\n"
        "print(len(modules) > 200, 'dataclasses' in sys.modules)\n"
        "print([f'{module.__name__}.{name}' for module in modules for name, value in vars(module).items()\n"
        "    if isinstance(value, type) and typing.NamedTuple in getattr(value, '__orig_bases__', ())])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "True False\n[]\n", done.stderr
