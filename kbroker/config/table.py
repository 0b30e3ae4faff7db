"""Tables of properties as classes: an attribute is a row, the docstring below it the property's description.

    class LogProperties(Table):
        log_cleaner_threads = INT("1", MEDIUM, Range(0), mode=CLUSTER_WIDE)
        \"\"\"Number of compactors.\"\"\"

declares ``log.cleaner.threads``. To type checkers the attribute is a number; `BrokerProperties` have a node's value.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, TypeVar, overload

from kbroker.config.config_key import ConfigKey, ConfigType, Importance, Password, UpdateMode, Validator

T = TypeVar("T")

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE


class _Row(tuple[Any, ...]):
    """The fields of a :class:`ConfigKey` after its name."""

    __slots__ = ()


class _Kind(Generic[T]):
    """Makes the rows of one type of property, which are ``T`` to type checkers."""

    __slots__ = ("_type",)

    def __init__(self, of_type: ConfigType) -> None:
        self._type = of_type

    @overload
    def __call__(
        self,
        default: str,
        importance: Importance,
        valid: Validator | None = None,
        *,
        mode: UpdateMode = UpdateMode.READ_ONLY,
        internal: bool = False,
        no_effect: str = "",
    ) -> T: ...

    @overload
    def __call__(
        self,
        default: None,
        importance: Importance,
        valid: Validator | None = None,
        *,
        mode: UpdateMode = UpdateMode.READ_ONLY,
        internal: bool = False,
        no_effect: str = "",
    ) -> T | None: ...

    def __call__(
        self,
        default: str | None,
        importance: Importance,
        valid: Validator | None = None,
        *,
        mode: UpdateMode = UpdateMode.READ_ONLY,
        internal: bool = False,
        no_effect: str = "",
    ) -> Any:
        return _Row((self._type, default, importance, valid, mode, internal, no_effect))


BOOLEAN: Final = _Kind[bool](ConfigType.BOOLEAN)
CLASS: Final = _Kind[str](ConfigType.CLASS)
DOUBLE: Final = _Kind[float](ConfigType.DOUBLE)
INT: Final = _Kind[int](ConfigType.INT)
LIST: Final = _Kind[tuple[str, ...]](ConfigType.LIST)
LONG: Final = _Kind[int](ConfigType.LONG)
PASSWORD: Final = _Kind[Password](ConfigType.PASSWORD)
SHORT: Final = _Kind[int](ConfigType.SHORT)
STRING: Final = _Kind[str](ConfigType.STRING)


def derived(row: object) -> Any:
    """Returns ``row``, whose value `kbroker.config.broker_config` derives; the attribute's annotation is its type."""
    return row


class Table:
    """Base of the tables. ``no_effect`` is for all rows of a class: why setting one of them changes nothing."""

    KEYS: ClassVar[tuple[ConfigKey, ...]] = ()
    """The rows of the class, after those of its bases."""

    def __init_subclass__(cls, no_effect: str = "") -> None:
        rows = [(attribute, row) for attribute, row in vars(cls).items() if type(row) is _Row]
        keys = [key for base in cls.__bases__ for key in getattr(base, "KEYS", ())]
        place = cls.__module__, cls.__name__
        for attribute, row in rows:
            delattr(cls, attribute)  # values are an instance's, and found faster so
            *fields, reason = row
            keys.append(ConfigKey._make((attribute.replace("_", "."), *fields, reason or no_effect, place)))
        cls.KEYS = tuple(keys)
