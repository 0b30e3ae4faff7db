"""Whether a resource can have the dynamic configs that a request gives it (Kafka's
``ControllerConfigurationValidator``).
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.config import (
    BROKER_CONFIGS,
    InvalidConfig,
    UpdateMode,
    validate_group_configs,
    validate_topic_configs,
)
from kbroker.config.group import check_group_bounds
from kbroker.config.listeners import LISTENER_PREFIX
from kbroker.config.reconfiguration import (
    JUDGED_BY_BROKERS,
    OF_ALL_BROKERS,
    check_values,
    overridden,
    refused_names,
    validate_reconfiguration,
    with_mode,
)
from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.config_schema import ConfigSchema, broker_values
from kbroker.raft_metadata.image import ConfigsImage


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
    refused = refused_names(configs)
    if refused:
        raise ApiError(ErrorCode.INVALID_REQUEST, refused)
    before = image.for_broker(broker_id)
    try:
        check_values(configs, before)
        keys = ((name, value, BROKER_CONFIGS.get(name)) for name, value in configs.items())
        values = {name: key.parse(value) for name, value, key in keys if key is not None}
        check_group_bounds(schema.config.values | values)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
    if broker_id is None:
        single = with_mode(configs, UpdateMode.PER_BROKER)
        single += sorted(name for name in configs if _is_of_one_broker(name))
        if single:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(single)}]",
            )
    default = image.for_broker(None)
    own = image.for_broker(schema.config.node_id if broker_id is None else broker_id)
    layers = ((default, own), (configs, own) if broker_id is None else (default, configs))
    try:
        validate_reconfiguration(*(overridden(schema.config.raw, map(_judged_here, each)) for each in layers))
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None


def _is_of_one_broker(name: str) -> bool:
    found = LISTENER_PREFIX.match(name)
    return found is not None and name[found.end() :] not in OF_ALL_BROKERS


def _judged_here(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name not in JUDGED_BY_BROKERS}
