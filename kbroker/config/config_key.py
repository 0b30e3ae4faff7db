"""The definition of one property: type, default, limits, how it may be changed, and its form as text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum, StrEnum
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import NamedTuple


class ConfigType(IntEnum):
    """Kafka's property types; the numbers are those of DescribeConfigs' ``config_type``."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(StrEnum):
    """The weight of a property to most users, by Kafka's judgement."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class UpdateMode(StrEnum):
    """Whether a broker property may change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class InvalidConfig(ApiError):
    """A property that cannot be taken (INVALID_CONFIG to a client); ``message`` names it and says why."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)
        self.message: str = message


class Password(str):
    """A secret: its ``repr`` and ``str`` hide it, ``value`` gives it."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """The secret itself."""
        return str.__str__(self)

    def __repr__(self) -> str:
        return "[hidden]"

    def __str__(self) -> str:
        return "[hidden]"

    def __format__(self, spec: str) -> str:
        return format("[hidden]", spec)


def invalid_value(name: str, value: object, problem: str) -> InvalidConfig:
    """The error for one value of one property, in the words of Kafka's ``ConfigException``."""
    return InvalidConfig(f"Invalid value {_java_text(value)} for configuration {name}: {problem}")


def _java_text(value: object) -> str:
    """A typed value as Java prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_java_text, value))}]"
    return str(value)


class Validator(Protocol):
    """Judges the parsed value of the property ``name``: raises :class:`InvalidConfig` if it cannot be taken."""

    def __call__(self, name: str, value: Any) -> None: ...


class Range(NamedTuple):
    """A number within bounds, both included; None leaves that side open. ``also`` is allowed besides."""

    low: float | None = None
    high: float | None = None
    also: int | None = None

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise invalid_value(name, None, "Value must be non-null")
        low, high = self.low, self.high
        too_low, too_high = low is not None and value < low, high is not None and value > high
        if self.also is not None:
            if value != self.also and (too_low or too_high):
                raise invalid_value(name, value, f"Value must be between {low} and {high} or equal to {self.also}")
        elif too_low:
            raise invalid_value(name, value, f"Value must be at least {low}")
        elif too_high:
            raise invalid_value(name, value, f"Value must be no more than {high}")

    def __str__(self) -> str:
        """Kafka's notation, e.g. ``[1,...,9] or -1``."""
        bounds = [
            *([] if self.low is None else [f"{self.low}"]),
            "...",
            *([] if self.high is None else [f"{self.high}"]),
        ]
        return f"[{','.join(bounds)}]" + (f" or {self.also}" if self.also is not None else "")


class _Text(NamedTuple):
    """Any text, or any but none."""

    may_be_empty: bool

    def __call__(self, name: str, value: Any) -> None:
        if value is None and self.may_be_empty:
            raise invalid_value(name, None, "entry must be non null")
        if value == "" and not self.may_be_empty:
            raise invalid_value(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-null string" if self.may_be_empty else "non-empty string"


NOT_NULL = _Text(may_be_empty=True)
NOT_EMPTY = _Text(may_be_empty=False)


class OneOf(NamedTuple):
    """Accepts a value that is one of some words, in any case of letters with ``ignore_case``."""

    words: tuple[str, ...]
    ignore_case: bool = False

    def __call__(self, name: str, value: Any) -> None:
        if (value.upper() if self.ignore_case and value else value) not in self.words:
            which = " (case insensitive)" if self.ignore_case else ""
            raise invalid_value(name, value, f"String must be one of{which}: {', '.join(self.words)}")

    def __str__(self) -> str:
        return ("(case insensitive) " if self.ignore_case else "") + f"[{', '.join(self.words)}]"


class ListOf(NamedTuple):
    """A list of entries that are not empty, of ``words`` if there are any; one that is there again counts once."""

    words: tuple[str, ...] = ()
    may_be_empty: bool = True
    may_be_null: bool = False

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            if self.may_be_null:
                return
            raise InvalidConfig(f"Configuration '{name}' values must not be null.")
        if not value and not self.may_be_empty:
            raise InvalidConfig(
                f"Configuration '{name}' must not be empty. Valid values include: {str(self) or 'any non-empty value'}"
            )
        for entry in value:
            if not entry:
                raise InvalidConfig(f"Configuration '{name}' values must not be empty.")
            if self.words:
                OneOf(self.words)(name, entry)

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]" if self.words else ""


class ThrottledReplicas:
    """``*`` or a list of ``partition:broker``, empty entries left aside."""

    def __call__(self, name: str, value: Any) -> None:
        entries = [entry.strip() for entry in value]
        if "".join(entries) != "*" and not all(re.fullmatch(r"([0-9]+:[0-9]+)?", entry) for entry in entries):
            raise invalid_value(
                name, value, f"{name} must be the literal '*' or a list of replicas in the following format: {self}"
            )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


_INTEGER_LIMITS = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?")

REQUIRED = "\0required"
"""Stands for the default of a property that has none and must be given."""


class ConfigKey(NamedTuple):
    """A property of one scope (topic, broker, group), as a row of a `kbroker.config.table.Table` declares it.

    ``default`` is text as in a properties file, None for null, or :data:`REQUIRED`. ``no_effect`` is empty
    for a property that kbroker acts on; otherwise it says why setting it changes nothing.
    """

    name: str
    type: ConfigType
    default: str | None
    importance: Importance
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    no_effect: str = ""
    table: tuple[str, str] = ("", "")
    """Module and class."""

    @property
    def attribute(self) -> str:
        """The name in the table, and of the attribute with a node's value."""
        return self.name.replace(".", "_")

    @property
    def doc(self) -> str:
        """The description: the docstring below the row. It is read from the source, with others, when first wanted."""
        module, table = self.table
        return _descriptions(module).get((table, self.attribute), "")

    @property
    def sensitive(self) -> bool:
        """Whether values are never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def has_default(self) -> bool:
        """Whether the property may be left out."""
        return self.default != REQUIRED

    def parse(self, text: str | None) -> Any:
        """The typed value of ``text``, judged; :class:`InvalidConfig` when it cannot be taken."""
        value = None if text is None else self._convert(text)
        if value is not None and isinstance(self.validator, ListOf):
            value = list(dict.fromkeys(value))
        if self.validator is not None:
            self.validator(self.name, value)
        return value

    def default_value(self) -> Any:
        """The default, typed."""
        return None if self.default is None else self._convert(self.default)

    def _convert(self, text: str) -> Any:
        trimmed = text.strip()
        kind = self.type
        if kind in _INTEGER_LIMITS:
            low, high = _INTEGER_LIMITS[kind]
            # The length check keeps a hostile megabyte of digits from int()'s quadratic conversion.
            if not _INTEGER.fullmatch(trimmed) or len(trimmed) > 40 or not low <= int(trimmed) <= high:
                raise self._invalid(text, f"Not a number of type {kind.name}")
            return int(trimmed)
        if kind is ConfigType.BOOLEAN:
            lowered = trimmed.lower()
            if lowered not in ("true", "false"):
                raise self._invalid(text, "Expected value to be either true or false")
            return lowered == "true"
        if kind is ConfigType.DOUBLE:
            if not _DOUBLE.fullmatch(trimmed):
                raise self._invalid(text, "Not a number of type DOUBLE")
            return float(trimmed.rstrip("fFdD"))
        if kind is ConfigType.LIST:
            return [part.strip() for part in trimmed.split(",")] if trimmed else []
        if kind is ConfigType.PASSWORD:
            return Password(trimmed)
        return trimmed

    def _invalid(self, text: str, problem: str) -> InvalidConfig:
        return invalid_value(self.name, "[hidden]" if self.sensitive else text, problem)

    def format(self, value: Any) -> str | None:
        """The text of a typed value, as DescribeConfigs gives it; secrets too, so mind ``sensitive``."""
        if value is None:
            return None
        if self.type is ConfigType.BOOLEAN:
            return "true" if value else "false"
        if self.type is ConfigType.LIST:
            return ",".join(value)
        if self.type is ConfigType.DOUBLE:
            return _java_double(value)
        if isinstance(value, Password):
            return value.value
        return str(value)


@cache
def _descriptions(module: str) -> Mapping[tuple[str, str], str]:
    """The docstrings of the rows in a module's tables, by class and attribute; none where Python has no source."""
    import ast
    import inspect

    try:
        declared = ast.parse(inspect.getsource(sys.modules[module])).body
    except (OSError, KeyError):
        return {}
    found: dict[tuple[str, str], str] = {}
    for table in (each for each in declared if isinstance(each, ast.ClassDef)):
        for pair in pairwise(table.body):
            match pair:
                case (
                    ast.Assign([ast.Name(attribute)]) | ast.AnnAssign(ast.Name(attribute)),
                    ast.Expr(ast.Constant(str(text))),
                ):
                    found[table.name, attribute] = " ".join(text.split())
    return found


def _java_double(value: float) -> str:
    text = repr(float(value))
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)


class ConfigDef(Mapping[str, ConfigKey]):
    """The properties of one scope, by name, in alphabetical order."""

    def __init__(self, scope: str, keys: Iterable[ConfigKey]) -> None:
        self.scope = scope
        self._keys = {key.name: key for key in sorted(keys, key=lambda key: key.name)}

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def parse(self, name: str, text: str | None) -> Any:
        """The typed value; :class:`InvalidConfig` for a bad one and for a name that is not in the scope."""
        key = self._keys.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown {self.scope} config name: {name}")
        return key.parse(text)
