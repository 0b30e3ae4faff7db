"""The arguments of a verb, as its signature has them: read from JSON and from words, and told as a JSON schema.

What a fault or a wait takes is written once, with its method; lines of text (`script`) and HTTP (`control`) follow it.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, Unpack, get_args, get_origin, get_type_hints

from kbroker.errors import ErrorCode

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Between:
    """A number is neither less nor more."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text is one of these names, which are known once they are asked for; ``any_case``: also in other capitals.

    Where a signature has ``| int``, one of the numbers will do.
    """

    what: str
    names: Callable[[], Sequence[str]]
    any_case: bool = False
    numbers: Callable[[], Sequence[int]] = tuple


@dataclass(frozen=True, slots=True)
class Matches:
    """A text is of this form."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A text is a regular expression of Python's."""


def _apis() -> list[str]:
    from kbroker.handlers.registration import BROKER, registrations
    from kbroker.wire.registry import API_KEYS

    return [API_KEYS[key].name for key in registrations(BROKER)]


def _api_keys() -> list[int]:
    from kbroker.handlers.registration import BROKER, registrations

    return list(registrations(BROKER))


def _errors() -> list[str]:
    return [code.name for code in ErrorCode if code]


def _error_numbers() -> list[int]:
    return [int(code) for code in ErrorCode if code]


GROUP_STATES: Final = (
    *("Unknown", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling", "NotReady"),
)
"""The states that groups of any type can have, and that of none."""

MOST_SECONDS: Final = 1e9
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

Api: TypeAlias = Annotated[str, OneOf("API", _apis, numbers=_api_keys)]
Error: TypeAlias = Annotated[str, OneOf("error", _errors, numbers=_error_numbers)]
Topic: TypeAlias = Annotated[str, Matches(r"[a-zA-Z0-9._\-]{1,249}")]
Group: TypeAlias = Annotated[str, Matches(r"[\s\S]{1,10000}")]
State: TypeAlias = Annotated[str, OneOf("group state", lambda: GROUP_STATES, any_case=True)]
Regex: TypeAlias = Annotated[str, Expression()]
Index: TypeAlias = Annotated[int, Between(0, 2**31 - 1)]
Offset: TypeAlias = Annotated[int, Between(0, 2**63 - 1)]
Count: TypeAlias = Annotated[int, Between(1, 10_000)]
Times: TypeAlias = Annotated[int, Between(1, 2**63 - 1)]
Seconds: TypeAlias = Annotated[float, Between(0, MOST_SECONDS)]
Patience: TypeAlias = Annotated[float, Between(0, 86_400)]
Chance: TypeAlias = Annotated[float, Between(0, 1)]


@dataclass(frozen=True, slots=True)
class _OrNumber:
    """A number stands for the name, too."""


class Wrong(ValueError):
    """An argument that is not as it is to be; the text says which, and what it is to be."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument: its name, the type that its signature has, and whether it must be given."""

    name: str
    kind: Any
    needed: bool
    default: Any = None


@cache
def parameters_of(function: Callable[..., object]) -> tuple[Parameter, ...]:
    """The arguments of a function or method but the first, those of an unpacked ``TypedDict`` among them."""
    hints = get_type_hints(function, include_extras=True)
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount][1:]
    given: Sequence[Any] = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(positional[len(positional) - len(given) :], given, strict=True))
    defaults |= function.__kwdefaults__ or {}
    found = [Parameter(name, hints[name], name not in defaults, defaults.get(name)) for name in names]
    for kind in hints.values():
        if get_origin(kind) is Unpack:
            [several] = get_args(kind)
            each = get_type_hints(several, include_extras=True)
            found += [Parameter(name, hint, needed=False) for name, hint in each.items()]
    return tuple(found)


def result_of(function: Callable[..., object]) -> Any:
    """The type of what a function returns."""
    return get_type_hints(function, include_extras=True)["return"]


def _split(kind: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """The bare type, what is asked of its values, and whether None is one of them."""
    rules: tuple[Any, ...] = ()
    optional = False
    while True:
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            rules += tuple(more)
        elif get_origin(kind) in (Union, UnionType):
            optional = optional or NoneType in get_args(kind)
            kind, *others = (each for each in get_args(kind) if each is not NoneType)
            rules += (_OrNumber(),) if int in others else ()
        else:
            return kind, rules, optional


def arguments_of(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments from an object of JSON; ``Wrong`` says what is missing, unknown or of another type."""
    known = {each.name: each for each in parameters}
    for name in given:
        if name not in known:
            raise Wrong(f"there is no {_quoted(name)} here; there is {', '.join(known) or 'nothing'}")
    for each in parameters:
        if each.needed and each.name not in given:
            raise Wrong(f"{each.name} is missing")
    return {name: value_of(known[name], value) for name, value in given.items()}


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def value_of(parameter: Parameter, value: Any) -> Any:
    """The value of an argument, from one of JSON."""
    kind, rules, optional = _split(parameter.kind)
    if value is None and optional:
        return None
    name = parameter.name
    if get_origin(kind) is Literal:
        if not isinstance(value, str) or value not in get_args(kind):
            raise Wrong(f"{name} is to be one of {', '.join(get_args(kind))}")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise Wrong(f"{name} is to be true or false")
        return value
    if get_origin(kind) is dict:
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise Wrong(f"{name} is to be an object of texts")
        return value
    if kind is bytes:
        return _from_base64(name, value)
    if _OrNumber() in rules and isinstance(value, int) and not isinstance(value, bool):
        if not any(value in rule.numbers() for rule in rules if isinstance(rule, OneOf)):
            raise Wrong(f"{name} is to be a name of Kafka's, or its number, which {value} is not")
        return value
    if kind is str:
        if not isinstance(value, str):
            raise Wrong(f"{name} is to be a text")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise Wrong(f"{name} is to be a number")
    elif kind is int:
        if value != int(value):
            raise Wrong(f"{name} is to be a whole number")
        value = int(value)
    for rule in rules:
        _check(name, rule, value)
    return value


def _from_base64(name: str, value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except ValueError:
        pass
    raise Wrong(f"{name} is to be a text in base64")


def _check(name: str, rule: object, value: Any) -> None:
    match rule:
        case Between(least, most) if not least <= value <= most:
            raise Wrong(f"{name} is to be from {least:g} to {most:g}")
        case OneOf(what, names, any_case) if not _is_one(value, names(), any_case):
            raise Wrong(f"Kafka has no {what} {_quoted(value)}")
        case Matches(pattern) if not re.fullmatch(pattern, value):
            raise Wrong(f"{_quoted(value)} cannot be a {name}")
        case Expression():
            expression(name, value)


def _is_one(value: str, names: Sequence[str], any_case: bool) -> bool:
    return value.lower() in map(str.lower, names) if any_case else value in names


def expression(name: str, text: str) -> re.Pattern[str]:
    """A regular expression; ``Wrong`` if it is none."""
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise Wrong(f"{name} is no regular expression: {error}") from None


def from_text(parameter: Parameter, text: str) -> Any:
    """The value of an argument, from a word of a line or of an address."""
    kind, _, _ = _split(parameter.kind)
    value: Any = text
    if kind is bool:
        value = {"true": True, "false": False}.get(text)
    elif kind in (int, float):
        try:
            value = kind(text)
        except (ValueError, OverflowError):
            value = text
    return value_of(parameter, value)


def schema_of(kind: Any) -> Schema:
    """The JSON schema of a type: of an argument, or of what a verb returns."""
    kind, rules, optional = _split(kind)
    origin = get_origin(kind)
    schema: Schema
    if origin is Literal:
        schema = {"type": "string", "enum": list(get_args(kind))}
    elif is_dataclass(kind) and isinstance(kind, type):
        schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    elif origin in (list, tuple):
        schema = {"type": "array", "items": schema_of(get_args(kind)[0])}
    elif origin is dict:
        schema = {"type": "object", "additionalProperties": schema_of(get_args(kind)[1])}
    else:
        names = {str: "string", bytes: "string", int: "integer", float: "number", bool: "boolean"}
        schema = {"type": names[kind]}
        if kind is bytes:
            schema |= {"contentEncoding": "base64", "pattern": _BASE64}
    for rule in rules:
        match rule:
            case Between(least, most):
                schema |= {"minimum": least, "maximum": most}
            case OneOf(_, names_of, _, numbers_of):
                numbers = list(numbers_of()) if _OrNumber() in rules else []
                schema = {"enum": [*names_of(), *numbers]} if numbers else schema | {"enum": list(names_of())}
            case Matches(pattern):
                schema["pattern"] = f"^{pattern}$"
            case Expression():
                schema["format"] = "regex"
    return {"anyOf": [schema, {"type": "null"}]} if optional else schema


def schemas_in(kind: Any, found: dict[str, Schema]) -> None:
    """Add the schemas of the dataclasses in a type, by their names."""
    kind, _, _ = _split(kind)
    for each in get_args(kind):
        schemas_in(each, found)
    if not (is_dataclass(kind) and isinstance(kind, type)) or kind.__name__ in found:
        return
    hints = get_type_hints(kind, include_extras=True)
    about = (kind.__doc__ or "").partition("\n")[0]
    names = [each.name for each in fields(kind)]
    found[kind.__name__] = {
        "type": "object",
        "description": about,
        "properties": {name: schema_of(hints[name]) for name in names},
        "required": names,
    }
    for name in names:
        schemas_in(hints[name], found)
