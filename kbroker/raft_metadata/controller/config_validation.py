"""Whether a resource can have the dynamic configs that a request gives it (Kafka's
``ControllerConfigurationValidator``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.config import (
    BROKER_CONFIGS,
    InvalidConfig,
    UpdateMode,
    validate_group_configs,
    validate_topic_configs,
)
from kbroker.config.dynamic import broker_config_key
from kbroker.config.fixed import why_fixed
from kbroker.config.group import check_group_bounds
from kbroker.config.reconfiguration import check_security, overridden, validate_reconfiguration
from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.config_schema import ConfigSchema, broker_values
from kbroker.raft_metadata.image import ConfigsImage

_LISTENER_PREFIX = "listener.name."
_TLS_PREFIX = "ssl."
_PRINCIPALS_PREFIX = "principal."


def validate_topic_config(schema: ConfigSchema, configs: Mapping[str, str]) -> None:
    """``ApiError`` INVALID_CONFIG if a topic cannot have these overrides."""
    try:
        validate_topic_configs(configs, schema.config.values)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from None


def validate_group_config(schema: ConfigSchema, image: ConfigsImage, configs: Mapping[str, str]) -> None:
    """``ApiError`` INVALID_CONFIG if a group cannot have these configs."""
    try:
        validate_group_configs(configs, broker_values(image, schema.config))
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from None


def validate_broker_config(
    schema: ConfigSchema, image: ConfigsImage, configs: Mapping[str, str], *, broker_id: int | None
) -> None:
    """``ApiError`` INVALID_REQUEST (Kafka's choice of code) if these cannot be a broker's dynamic configs.

    ``broker_id``: the broker, which is assumed to have this node's properties file; None for the default of all
    brokers, which is judged as if for this node.
    """
    fixed = _with_mode(configs, UpdateMode.READ_ONLY)
    if fixed:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    unprefixed = _without_prefix(configs)
    if unprefixed:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(unprefixed)}]",
        )
    values: dict[str, Any] = {}
    try:
        for name, value in configs.items():
            key = broker_config_key(name)
            if key is not None:
                values[name] = key.parse(value)
        check_group_bounds(schema.config.values | values)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
    if broker_id is None:
        single = _with_mode(configs, UpdateMode.PER_BROKER)
        single += sorted(name for name in configs if name.startswith(_LISTENER_PREFIX))
        if single:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(single)}]",
            )
    before = image.for_broker(broker_id)
    _check_security(configs, before)
    _refuse_absent(configs, before)
    default = image.for_broker(None)
    own = image.for_broker(schema.config.node_id if broker_id is None else broker_id)
    try:
        validate_reconfiguration(
            overridden(schema.config.raw, (default, own)),
            overridden(schema.config.raw, (configs, own) if broker_id is None else (default, configs)),
        )
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
    _refuse_without_effect(schema, configs, before)


def _with_mode(configs: Mapping[str, str], mode: UpdateMode) -> list[str]:
    return sorted(name for name in configs if (key := broker_config_key(name)) is not None and key.update_mode is mode)


def _without_prefix(configs: Mapping[str, str]) -> list[str]:
    """Properties of TLS that only a listener can have while it runs."""
    if not any(name.startswith(_TLS_PREFIX) for name in configs):
        return []
    from kbroker.config.security.tls import STORES

    return sorted(STORES.intersection(configs))


def _check_security(configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """``ApiError`` for what the listeners' security cannot have."""
    if not any(name.startswith((_LISTENER_PREFIX, _TLS_PREFIX, _PRINCIPALS_PREFIX)) for name in configs):
        return
    try:
        check_security(configs, before)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None


def _refuse_absent(configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """``ApiError`` for a new value of what kbroker does not implement, or reads at its start alone.

    Values of earlier releases stay.
    """
    others = [name for name in configs if name not in BROKER_CONFIGS and configs[name] != before.get(name)]
    if not others:
        return
    from kbroker.config.absent import absent_key, set_otherwise

    try:
        otherwise = set_otherwise(configs, others)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
    for name in others:
        if name in otherwise or absent_key(name) is None:
            _refuse_fixed(name)


def _refuse_without_effect(schema: ConfigSchema, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """``ApiError`` for a new value of a property that is there, and changes nothing; that of the node's file is none.

    Values of earlier releases stay.
    """
    for name, text in configs.items():
        key = BROKER_CONFIGS.get(name)
        if key is None or text == before.get(name) or key.parse(text) == schema.config.values[name]:
            continue
        _refuse_fixed(name)


def _refuse_fixed(name: str) -> None:
    reason = why_fixed(name)
    if reason:
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
