"""Dynamic configurations: IncrementalAlterConfigs and AlterConfigs.

Kafka's ``ConfigurationControlManager`` and ``ControllerConfigurationValidator``. Each resource changes wholly or not at
all, whatever becomes of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbroker.config import BROKER_CONFIGS, InvalidConfig, UpdateMode, validate_group_configs, validate_topic_configs
from kbroker.config.broker_checks import CORDONED
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
from kbroker.raft_metadata.config_schema import MIN_INSYNC_REPLICAS, ConfigSchema, broker_values
from kbroker.raft_metadata.controller.broker_changes import every_partition
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.image import ALL_BROKERS, ConfigResource, ConfigsImage, ResourceType, config_record
from kbroker.raft_metadata.metadata_version import CORDONED_DIRECTORIES, metadata_version_name
from kbroker.raft_metadata.topics import validate_topic_name
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import ClearElrRecord, ConfigRecord, PartitionChangeRecord

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3
OPERATION_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

MAX_CONFIG_VALUE_LENGTH = 2**15 - 1


class ConfigChange(NamedTuple):
    """A change of a property; ``operation`` is that of IncrementalAlterConfigs."""

    name: str
    operation: int
    value: str | None


ConfigErrors = dict[ConfigResource, ApiError | None]
"""The error of each resource; None is success."""


def incremental_alter_configs(
    view: ControllerView,
    changes: Mapping[ConfigResource, Sequence[ConfigChange]],
    *,
    validate_only: bool = False,
    forwarded: bool = True,
) -> ControllerResult[ConfigErrors]:
    """Change single properties of some resources. ``forwarded``: the broker that they are for has judged them."""
    records: list[ConfigRecord] = []
    errors: ConfigErrors = {}
    for resource, wanted in changes.items():
        try:
            records += incremental_records(view, resource, wanted, forwarded=forwarded)
            errors[resource] = None
        except ApiError as error:
            errors[resource] = error.without_traceback()
    return _result(view, errors, records, validate_only=validate_only)


def incremental_records(
    view: ControllerView,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    new_resource: bool = False,
    forwarded: bool = True,
) -> list[ConfigRecord]:
    """The records of one resource's changes; ``ApiError`` if any of them cannot be taken."""
    current = view.image.configs.get(resource)
    records = []
    for change in changes:
        old = current.get(change.name)
        new = _new_value(view, resource, change, old)
        # A broker's unchanged value is written again: that makes it reload, e.g. a key store (KAFKA-14136).
        if new != old or resource.type == ResourceType.BROKER:
            records.append(config_record(resource, change.name, new))
    _validate(view, resource, records, new_resource=new_resource, forwarded=forwarded)
    if changes:
        _ask_policy(view, resource, records)
    return records


def legacy_alter_configs(
    view: ControllerView,
    replacements: Mapping[ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
    forwarded: bool = True,
) -> ControllerResult[ConfigErrors]:
    """Replace all properties of some resources; a property that is not named is removed."""
    records: list[ConfigRecord] = []
    errors: ConfigErrors = {}
    for resource, wanted in replacements.items():
        current = view.image.configs.get(resource)
        own = [
            config_record(resource, name, value)
            for name, value in wanted.items()
            if value != current.get(name) or resource.type == ResourceType.BROKER
        ]
        named = list(own)
        own += [config_record(resource, name, None) for name in current if name not in wanted]
        try:
            _validate(view, resource, own, forwarded=forwarded)
            _ask_policy(view, resource, named)  # not of what is removed without a name (KAFKA-14195)
        except ApiError as error:
            errors[resource] = error.without_traceback()
            continue
        records += own
        errors[resource] = None
    return _result(view, errors, records, validate_only=validate_only)


def _result(
    view: ControllerView, errors: ConfigErrors, changes: Sequence[ConfigRecord], *, validate_only: bool
) -> ControllerResult[ConfigErrors]:
    """The result; a change of ``min.insync.replicas`` clears the eligible leader replicas, which depend on it."""
    records: list[Any] = [] if validate_only else list(changes)
    if view.image.features.elr_enabled:
        of_min_isr = [change for change in records if change.name == MIN_INSYNC_REPLICAS]
        records += _records_to_clear_elr(view, of_min_isr)
    return ControllerResult(errors, records)


def _records_to_clear_elr(view: ControllerView, changes: Sequence[ConfigRecord]) -> Iterator[object]:
    names = dict.fromkeys(each.resource_name if each.resource_type == ResourceType.TOPIC else "" for each in changes)
    yield from (ClearElrRecord(topic_name=name) for name in names)
    for topic, index, partition in every_partition(view) if names else ():
        if not partition.isr and ("" in names or topic.name in names):
            # Nothing is written there meanwhile, so they still have everything; and without them nobody could lead.
            yield PartitionChangeRecord(
                partition_id=index,
                topic_id=topic.id,
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
            )


def elr_safety_records(view: ControllerView) -> list[ConfigRecord]:
    """The records that make it safe to enable eligible leader replicas: one ``min.insync.replicas`` for all brokers,
    in the metadata (Kafka's ``maybeGenerateElrSafetyRecords``)."""
    configs = view.image.configs
    records = []
    if MIN_INSYNC_REPLICAS not in configs.for_broker(None):
        records.append(config_record(ALL_BROKERS, MIN_INSYNC_REPLICAS, str(view.schema.static_min_insync_replicas)))
    return records + [
        config_record(resource, MIN_INSYNC_REPLICAS, None)
        for resource, own in configs.by_resource.items()
        if resource.type == ResourceType.BROKER and resource.name and MIN_INSYNC_REPLICAS in own
    ]


def _new_value(view: ControllerView, resource: ConfigResource, change: ConfigChange, old: str | None) -> str | None:
    if change.operation == SET:
        return change.value
    if change.operation == DELETE:
        return None
    name = OPERATION_NAMES.get(change.operation)
    if name is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}")
    schema = view.schema
    if not schema.is_list(resource.type, change.name):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Can't {name} to key {change.name} because its type is not LIST.")
    text = old if old is not None else schema.default(resource.type, change.name)
    parts = [part for part in (text or "").split(",") if part]
    for value in (change.value or "").split(","):
        if change.operation == APPEND and value not in parts:
            parts.append(value)
        elif change.operation == SUBTRACT and value in parts:
            parts.remove(value)
    return ",".join(parts)


def _validate(
    view: ControllerView,
    resource: ConfigResource,
    records: Sequence[ConfigRecord],
    *,
    new_resource: bool = False,
    forwarded: bool,
) -> None:
    after = dict(view.image.configs.get(resource))
    for record in records:
        if record.value is None:
            after.pop(record.name, None)
        elif len(record.value) > MAX_CONFIG_VALUE_LENGTH:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_CONFIG_VALUE_LENGTH} bytes.",
            )
        else:
            after[record.name] = record.value
    if resource.type == ResourceType.TOPIC:
        if not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        validate_topic_name(resource.name)
        validate_topic_config(view.schema, after)
        # Last, as in Kafka (ConfigurationControlManager.validateAlterConfig): wrong values are reported first.
        if not new_resource and resource.name not in view.image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    elif resource.type == ResourceType.BROKER:
        _validate_broker_name(view, resource.name)
        validate_broker_config(
            view.schema, view.image.configs, after, broker_id=int(resource.name) if resource.name else None
        )
        for record in records:
            _check_elr(view, record)
            _check_cordoned(view, record, view.image.configs.get(resource).get(CORDONED), forwarded=forwarded)
    elif resource.type == ResourceType.GROUP:
        if not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        validate_group_config(view.schema, view.image.configs, after)
    elif resource.type == ResourceType.CLIENT_METRICS:
        from kbroker.config.client_metrics import validate_client_metrics

        validate_client_metrics(resource.name, after)
    else:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Unknown resource type {ResourceType.NAMES.get(resource.type, 'UNKNOWN')}"
        )


def _ask_policy(view: ControllerView, resource: ConfigResource, records: Sequence[ConfigRecord]) -> None:
    """`ApiError` POLICY_VIOLATION if the policy is against the changes; last, when all else is in order (KIP-133)."""
    if view.policies.alter_config is not None:
        changes = {record.name: record.value for record in records}
        view.policies.alter_config(resource.type, resource.name, changes)


def _validate_broker_name(view: ControllerView, name: str) -> None:
    if not name:
        return
    try:
        broker_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.") from None
    if broker_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    image = view.image
    if broker_id not in (*image.brokers, *image.controllers, view.node_id):
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id " + name + " found.")


def _check_elr(view: ControllerView, record: ConfigRecord) -> None:
    """All brokers must have one ``min.insync.replicas`` while the controller finds eligible leaders by it."""
    if record.name != MIN_INSYNC_REPLICAS or not view.image.features.elr_enabled:
        return
    if record.resource_name:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        )
    if record.value is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        )


def _check_cordoned(view: ControllerView, record: ConfigRecord, current: str | None, *, forwarded: bool) -> None:
    """Only a broker knows the paths of its directories: what it has not judged may name no more than before."""
    if record.name != CORDONED:
        return
    if view.image.features.metadata_version < CORDONED_DIRECTORIES:
        level = metadata_version_name(CORDONED_DIRECTORIES)
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= {level}",
        )
    if not forwarded and not {*_paths(record.value)} <= {*_paths(current)}:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"When updating {CORDONED} via controllers,  the new value must be a subset of the current configuration "
            "value.",
        )


def _paths(text: str | None) -> list[str]:
    return [path.strip() for path in text.split(",")] if text and text.strip() else []


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
