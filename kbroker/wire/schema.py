"""The declaration of messages: one class for all versions of a message, one field a line.

    @message(api_key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest(Request["HeartbeatResponse"]):
        group_id: Str = ""
        generation_id: Int32 = 0
        member_id: Str = ""
        group_instance_id: Str | None = field("3+", nullable="3+", default=None)

A request names its response, so that type checkers know what comes back for it. The annotation of a field is the wire
type, and the value after ``=`` is the default, which a field also holds when it is not part of the version decoded.
``field()`` says what else is special: versions, null, tag. A class made by ``@message`` or ``@struct`` has slots, is
built with keywords, compares by value, and works with ``dataclasses.fields``, ``replace`` and ``asdict``. Building a
class is cheap (no code is generated until the first instance or the first codec), since start-up imports many of them.

Version ranges are Kafka's: ``"3"``, ``"3+"``, ``"1-4"``, ``"none"``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, dataclass_transform

from kbroker.types import ZERO_UUID, Part, Uuid
from kbroker.value_types import LazyDataclassFields, NamedTuple

Int8: TypeAlias = int
Int16: TypeAlias = int
Int32: TypeAlias = int
Int64: TypeAlias = int
UInt16: TypeAlias = int
UInt32: TypeAlias = int
Float64: TypeAlias = float
Bool: TypeAlias = bool
Str: TypeAlias = str
Bytes: TypeAlias = bytes
UuidField: TypeAlias = Uuid
"""16 bytes."""
Records: TypeAlias = memoryview
"""Record batches inside a request: a view into the frame, not a copy."""
ResponseRecords: TypeAlias = Part | list[Part]
"""Record batches inside a response: passed to the socket as they are; decoding gives a ``memoryview``."""

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

if TYPE_CHECKING:

    class Request(Generic[R_co]):
        """A message that is answered by another: ``Request[HeartbeatResponse]``. For type checkers alone."""

        api_key: ClassVar[int]

else:

    class Request:
        """The base in the declaration of a request; the class that is made of the declaration does without it."""

        def __class_getitem__(cls, response: str) -> type[Request]:
            return cls


MAX_VERSION: Final = 0x7FFF

FIRST_OWN_TAG: Final = 10_000
"""Tagged fields from this tag on are kbroker's own (docs/decisions/0026-own-tagged-fields.md); Kafka counts from 0."""


class VersionRange(NamedTuple):
    """Versions ``lowest`` to ``highest``, both included; empty if ``lowest > highest``."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self[0] > self[1]:
            return "none"
        if self[1] == MAX_VERSION:
            return f"{self[0]}+"
        return str(self[0]) if self[0] == self[1] else f"{self[0]}-{self[1]}"


NO_VERSIONS: Final = VersionRange(0, -1)


@functools.cache
def parse_versions(text: str) -> VersionRange:
    """A range from Kafka's notation; ``ValueError`` if it is not one."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), MAX_VERSION)
    low, dash, high = text.partition("-")
    return VersionRange(int(low), int(high if dash else low))


class _Missing:
    def __repr__(self) -> str:
        return "<default>"


MISSING: Final = _Missing()
"""Stands for "the default of the type": zero, empty, or a struct of defaults."""


class _Options:
    """The arguments of ``field()``, until the class is looked at."""

    __slots__ = ("default", "ignorable", "nullable", "tag", "tagged", "versions")

    def __init__(
        self, versions: str, nullable: str, default: Any, tag: int | None, tagged: str | None, ignorable: bool
    ) -> None:
        self.versions = versions
        self.nullable = nullable
        self.default = default
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable


def field(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = MISSING,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> Any:
    """A field that is more than a type and a default.

    ``versions``: those that have the field. ``nullable``: those in which it may be null. ``tag``: it is a
    tagged field in the versions ``tagged`` (all that have it, unless said otherwise). ``ignorable``: a
    value that the version cannot carry is dropped; for other fields that is an ``EncodeError``.
    """
    return _Options(versions, nullable, default, tag, tagged, ignorable)


class TypeSpec:
    """A wire type: a primitive by its alias's name, a struct class, or a list of either."""

    __slots__ = ("element", "name", "struct")

    def __init__(self, name: str, struct: type[Any] | None = None, element: TypeSpec | None = None) -> None:
        self.name = name
        self.struct = struct
        """The struct's class, or ``None``."""
        self.element = element
        """The element's type if this is a list."""

    def __repr__(self) -> str:
        return f"list[{self.element!r}]" if self.element else self.name


FIXED_FORMATS: Final = {
    "Int8": "b",
    "Int16": "h",
    "Int32": "i",
    "Int64": "q",
    "UInt16": "H",
    "UInt32": "I",
    "Float64": "d",
    "Bool": "?",
    "UuidField": "16s",
}
"""``struct`` formats of the types whose width is fixed."""

_TYPE_DEFAULTS: Final[dict[str, Any]] = {
    "Int8": 0,
    "Int16": 0,
    "Int32": 0,
    "Int64": 0,
    "UInt16": 0,
    "UInt32": 0,
    "Float64": 0.0,
    "Bool": False,
    "UuidField": ZERO_UUID,
    "Str": "",
    "Bytes": b"",
    "Records": None,
    "ResponseRecords": None,
}


class FieldSpec(NamedTuple):
    """A field of a message or struct, as declared."""

    name: str
    type: TypeSpec
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    default: Any
    """The default; an empty list or ``MISSING`` (a struct of defaults) stand for a new object each time."""
    ignorable: bool


def is_own(field_spec: FieldSpec) -> bool:
    """Whether a field is kbroker's own, which Kafka's definition of the message does not have."""
    return field_spec.tag is not None and field_spec.tag >= FIRST_OWN_TAG


class StructSpec(NamedTuple):
    """A whole declaration.

    ``versions`` and ``flexible`` are those of the message; a struct takes them from where it is used.
    """

    cls: type[Any]
    fields: tuple[FieldSpec, ...]
    api_key: int | None
    versions: VersionRange
    flexible: VersionRange
    unstable_last: bool


SECRET_FIELDS: Final = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key"})
"""Fields whose values no text shows, in whatever message (CVE-2026-33558)."""


def is_hidden(field_name: str, sibling_name: object) -> bool:
    """Whether no text shows a field: always, or as the ``value`` of a property with such a ``name`` beside it
    (`kbroker.config.secret_names`).
    """
    if field_name != "value":
        return field_name in SECRET_FIELDS
    if not isinstance(sibling_name, str):
        return False
    from kbroker.config.secret_names import is_secret_property

    return is_secret_property(sibling_name)


class Message:
    """Base of all declared classes: value semantics without code generated per class."""

    __slots__: tuple[str, ...] = ()
    __kafka__: _Declaration

    def __repr__(self) -> str:
        sibling = getattr(self, "name", None)
        inner = ", ".join(
            f"{name}=[hidden]" if is_hidden(name, sibling) else f"{name}={getattr(self, name)!r}"
            for name in type(self).__slots__
        )
        return f"{type(self).__name__}({inner})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable


class _Declaration:
    """The decorator's findings about a class, until its spec is asked for."""

    __slots__ = ("annotations", "api_key", "defaults", "flexible", "is_message", "spec", "unstable_last", "versions")

    def __init__(
        self,
        annotations: dict[str, str],
        defaults: dict[str, Any],
        api_key: int | None,
        versions: str,
        flexible: str,
        unstable_last: bool,
        is_message: bool,
    ) -> None:
        self.annotations = annotations
        self.defaults = defaults
        self.api_key = api_key
        self.versions = versions
        self.flexible = flexible
        self.unstable_last = unstable_last
        self.is_message = is_message
        self.spec: StructSpec | None = None


_DATACLASS_FIELDS: Final = LazyDataclassFields(lambda cls: [(name, Any, None) for name in cls.__kafka__.annotations])


def _first_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """The ``__init__`` of a class without instances yet: replaces itself by a generated one."""
    cls = type(self)
    _compile_init(cls)
    cls.__init__(self, *args, **kwargs)


def _compile_init(cls: type[Any]) -> None:
    parameters: list[str] = []
    body: list[str] = []
    namespace: dict[str, Any] = {"MISSING": MISSING}
    for number, spec in enumerate(struct_spec(cls).fields):
        name = spec.name
        if isinstance(spec.default, list):
            parameters.append(f"{name}=MISSING")
            body.append(f" self.{name} = [] if {name} is MISSING else {name}\n")
        elif spec.default is MISSING:
            namespace[f"S{number}"] = spec.type.struct
            parameters.append(f"{name}=MISSING")
            body.append(f" self.{name} = S{number}() if {name} is MISSING else {name}\n")
        else:
            parameters.append(f"{name}={spec.default!r}")
            body.append(f" self.{name} = {name}\n")
    source = f"def __init__(self, {', '.join(parameters)}):\n{''.join(body) or ' pass'}\n"
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), namespace)
    init = namespace["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init


def _build(
    cls: type[T],
    api_key: int | None = None,
    versions: str = "0+",
    flexible: str = "none",
    unstable_last: bool = False,
    is_message: bool = False,
) -> type[T]:
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063  # inspect costs a millisecond
    namespace: dict[str, Any] = {
        "__slots__": tuple(annotations),
        "__match_args__": tuple(annotations),
        "__init__": _first_init,
        "__dataclass_fields__": _DATACLASS_FIELDS,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__annotations__": annotations,
        "__decoders__": {},
        "__encoders__": {},
    }
    defaults: dict[str, Any] = {}
    for name, value in cls.__dict__.items():
        if name in annotations:
            defaults[name] = value
        elif name not in ("__dict__", "__weakref__") and name not in namespace:
            namespace[name] = value
    namespace["__kafka__"] = _Declaration(annotations, defaults, api_key, versions, flexible, unstable_last, is_message)
    if api_key is not None:
        namespace["api_key"] = api_key
    return type(cls.__name__, (Message,), namespace)


@dataclass_transform(kw_only_default=True)
def message(
    *, versions: str, flexible: str = "none", api_key: int | None = None, unstable_last: bool = False
) -> Callable[[type[T]], type[T]]:
    """Declare a message: a request, a response, or a record with versions of its own.

    ``api_key`` is also the class attribute ``api_key``. ``unstable_last``: Kafka 4.3.1 does not advertise
    the last version without ``unstable.api.versions.enable``.
    """
    return lambda cls: _build(cls, api_key, versions, flexible, unstable_last, True)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a struct that occurs inside messages of its module."""
    return _build(cls)


def struct_spec(cls: type[Any]) -> StructSpec:
    """The declaration of a class made by ``@message`` or ``@struct``, resolved on first use."""
    declaration: _Declaration = cls.__kafka__
    if declaration.spec is None:
        declaration.spec = StructSpec(
            cls=cls,
            fields=tuple(
                _field_spec(cls, name, annotation, declaration.defaults.get(name, MISSING))
                for name, annotation in declaration.annotations.items()
            ),
            api_key=declaration.api_key,
            versions=parse_versions(declaration.versions),
            flexible=parse_versions(declaration.flexible),
            unstable_last=declaration.unstable_last,
        )
    return declaration.spec


def _field_spec(cls: type[Any], name: str, annotation: str, value: Any) -> FieldSpec:
    options = value if isinstance(value, _Options) else _Options("0+", "none", value, None, None, False)
    type_spec = _type_spec(cls, annotation.removesuffix(" | None"))
    default = options.default
    if default is MISSING:
        default = [] if type_spec.element else _TYPE_DEFAULTS.get(type_spec.name, MISSING)
    versions = parse_versions(options.versions)
    tagged = NO_VERSIONS
    if options.tag is not None:
        tagged = versions if options.tagged is None else parse_versions(options.tagged)
    return FieldSpec(
        name=name,
        type=type_spec,
        versions=versions,
        nullable=parse_versions(options.nullable),
        tag=options.tag,
        tagged=tagged,
        default=default,
        ignorable=options.ignorable,
    )


_PRIMITIVES: Final = {name: TypeSpec(name) for name in _TYPE_DEFAULTS}


def _type_spec(cls: type[Any], text: str) -> TypeSpec:
    if text.startswith("list["):
        return TypeSpec("list", element=_type_spec(cls, text[5:-1]))
    primitive = _PRIMITIVES.get(text)
    if primitive is not None:
        return primitive
    target = getattr(sys.modules[cls.__module__], text, None)
    if not (isinstance(target, type) and issubclass(target, Message)):
        raise TypeError(f"{cls.__qualname__}: {text!r} is neither a wire type nor a struct of its module")
    return TypeSpec(text, struct=target)
