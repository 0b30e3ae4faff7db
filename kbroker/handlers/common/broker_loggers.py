"""The loggers of this process as configs of the resource BROKER_LOGGER (KIP-412). Not an API itself.

Levels go by Kafka's names. Nothing of them is metadata: a level is the process's own, and a restart forgets it.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, Protocol

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.configs import DELETE, OPERATION_NAMES, SET

logger = logging.getLogger(__name__)

ROOT: Final = "root"
_TREE: Final = "kbroker"

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels -> Python's, which has no TRACE: it shows whatever DEBUG shows."""

_NAMES: Final = tuple(LEVELS)
_NUMBERS: Final = tuple(LEVELS.values())


class _Change(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def config_operation(self) -> int: ...
    @property
    def value(self) -> str | None: ...


class _Resource(Protocol):
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[_Change]: ...


def log_levels() -> dict[str, str]:
    """The level in force for each logger of kbroker and for the root, by name."""
    return {name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in _logger_names()}


def alter_log_levels(resource: _Resource, node_id: int, *, validate_only: bool) -> None:
    """Change levels, all of the request or none; ``ApiError`` says why not (Kafka's ``RuntimeLoggerManager``)."""
    _check_node(resource.resource_name, node_id)
    known = set(_logger_names())
    for change in resource.configs:
        _check_change(change, known)
    if validate_only:
        return
    for change in resource.configs:
        if change.config_operation == SET:
            assert change.value is not None
            logging.getLogger(change.name).setLevel(LEVELS[change.value])
            logger.warning("log level of %s set to %s", change.name, change.value)
        else:
            logging.getLogger(change.name).setLevel(logging.NOTSET)
            logger.warning("log level of %s unset", change.name)


def _logger_names() -> list[str]:
    """Packages have loggers as well: a level of one is that of its modules, those not yet imported included."""
    names = [name for name in logging.root.manager.loggerDict if name == _TREE or name.startswith(f"{_TREE}.")]
    return [ROOT, *sorted(names)]


def _level_name(level: int) -> str:
    """The least verbose of Kafka's levels that shows what this one shows; OFF if none of them is so terse."""
    index = bisect_left(_NUMBERS, level + 1) - 1
    if level > _NUMBERS[-1]:
        return "OFF"
    return _NAMES[max(index, 0)]


def _check_node(name: str, node_id: int) -> None:
    try:
        named = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if named != node_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {named}")


def _check_change(change: _Change, known: set[str]) -> None:
    operation = change.config_operation
    if operation not in (SET, DELETE):
        name = OPERATION_NAMES.get(operation)
        what = f"{name} operation" if name else f"Unknown operation type {operation}"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")
    if change.name not in known:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if operation == DELETE and change.name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
    if operation == SET and change.value not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
