"""Dynamic configurations: IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.controller.topic_names import validate_topic_name
from kbroker.raft_metadata.image import ConfigResource, ResourceType
from kbroker.wire.records.metadata import ClearElrRecord, ConfigRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3
_OPERATION_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

MAX_CONFIG_VALUE_LENGTH = 2**15 - 1

MIN_INSYNC_REPLICAS = "min.insync.replicas"


class ConfigChange(NamedTuple):
    """One change of one property."""

    name: str
    operation: int
    value: str | None


ConfigErrors = dict[ConfigResource, ApiError | None]
"""What became of each resource; None is success."""


class ConfigControl:
    """Decides on configurations. Each resource changes wholly or not at all; the others go on without it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def incremental_alter(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> ControllerResult[ConfigErrors]:
        """Change single properties of some resources."""
        records: list[ConfigRecord] = []
        errors: ConfigErrors = {}
        for resource, wanted in changes.items():
            try:
                records += self.incremental_records(resource, wanted)
                errors[resource] = None
            except ApiError as error:
                errors[resource] = error
        return self._result(errors, records, validate_only=validate_only)

    def incremental_records(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, new_resource: bool = False
    ) -> list[ConfigRecord]:
        """The records of one resource's changes; ``ApiError`` if any of them cannot be taken."""
        current = self._controller.image.configs.get(resource)
        records = []
        for change in changes:
            old = current.get(change.name)
            new = self._new_value(resource, change, old)
            # A broker's unchanged value is written again: that makes it reload, e.g. a key store (KAFKA-14136).
            if new != old or resource.type == ResourceType.BROKER:
                records.append(_record(resource, change.name, new))
        self._validate(resource, records, new_resource=new_resource)
        return records

    def legacy_alter(
        self, replacements: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> ControllerResult[ConfigErrors]:
        """Replace all properties of some resources: what is not named is removed."""
        records: list[ConfigRecord] = []
        errors: ConfigErrors = {}
        for resource, wanted in replacements.items():
            current = self._controller.image.configs.get(resource)
            own = [
                _record(resource, name, value)
                for name, value in wanted.items()
                if value != current.get(name) or resource.type == ResourceType.BROKER
            ]
            own += [_record(resource, name, None) for name in current if name not in wanted]
            try:
                self._validate(resource, own)
            except ApiError as error:
                errors[resource] = error
                continue
            records += own
            errors[resource] = None
        return self._result(errors, records, validate_only=validate_only)

    def _result(
        self, errors: ConfigErrors, changes: Sequence[ConfigRecord], *, validate_only: bool
    ) -> ControllerResult[ConfigErrors]:
        """``min.insync.replicas`` says which replicas are eligible leaders: with another value they are found anew."""
        records: list[Any] = [] if validate_only else list(changes)
        if self._controller.image.features.elr_enabled:
            records += [
                ClearElrRecord(topic_name=change.resource_name if change.resource_type == ResourceType.TOPIC else "")
                for change in tuple(records)
                if change.name == MIN_INSYNC_REPLICAS
            ]
        return ControllerResult(errors, records)

    def records_for_elr(self) -> list[ConfigRecord]:
        """What makes it safe to enable eligible leader replicas: one ``min.insync.replicas`` for all brokers, in the
        metadata (Kafka's ``maybeGenerateElrSafetyRecords``)."""
        configs = self._controller.image.configs
        records = []
        if MIN_INSYNC_REPLICAS not in configs.for_broker(None):
            records.append(min_insync_replicas_record(self._controller.schema.static_min_insync_replicas))
        return records + [
            _record(resource, MIN_INSYNC_REPLICAS, None)
            for resource, own in configs.by_resource.items()
            if resource.type == ResourceType.BROKER and resource.name and MIN_INSYNC_REPLICAS in own
        ]

    def _new_value(self, resource: ConfigResource, change: ConfigChange, old: str | None) -> str | None:
        if change.operation == SET:
            return change.value
        if change.operation == DELETE:
            return None
        name = _OPERATION_NAMES.get(change.operation)
        if name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}")
        schema = self._controller.schema
        if not schema.is_list(resource.type, change.name):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {name} to key {change.name} because its type is not LIST.",
            )
        text = old if old is not None else schema.default(resource.type, change.name)
        parts = [part for part in (text or "").split(",") if part]
        for value in (change.value or "").split(","):
            if change.operation == APPEND and value not in parts:
                parts.append(value)
            elif change.operation == SUBTRACT and value in parts:
                parts.remove(value)
        return ",".join(parts)

    def _validate(
        self, resource: ConfigResource, records: Sequence[ConfigRecord], *, new_resource: bool = False
    ) -> None:
        after = dict(self._controller.image.configs.get(resource))
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
            self._controller.schema.validate_topic(after)
            # Last, as in Kafka (ConfigurationControlManager.validateAlterConfig): wrong values are told of first.
            if not new_resource and resource.name not in self._controller.image.topics.by_name:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
        elif resource.type == ResourceType.BROKER:
            self._validate_broker_name(resource.name)
            self._controller.schema.validate_broker(
                self._controller.image.configs, after, broker_id=int(resource.name) if resource.name else None
            )
            if self._controller.image.features.elr_enabled:
                _check_elr(resource, records)
        elif resource.type == ResourceType.GROUP:
            if not resource.name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            self._controller.schema.validate_group(self._controller.image.configs, after)
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown resource type {ResourceType.NAMES.get(resource.type, 'UNKNOWN')}",
            )

    def _validate_broker_name(self, name: str) -> None:
        if not name:
            return
        try:
            broker_id = int(name)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.") from None
        if broker_id < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
        if broker_id not in self._controller.image.brokers and broker_id != self._controller.node_id:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with id " + name + " found.")


def min_insync_replicas_record(value: int) -> ConfigRecord:
    """The default of all brokers, which eligible leader replicas need in the metadata."""
    return _record(ConfigResource(ResourceType.BROKER, ""), MIN_INSYNC_REPLICAS, str(value))


def _check_elr(resource: ConfigResource, records: Sequence[ConfigRecord]) -> None:
    """All brokers must have one ``min.insync.replicas`` while the controller finds eligible leaders by it."""
    for record in records:
        if record.name == MIN_INSYNC_REPLICAS and resource.name:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
            )
        if record.name == MIN_INSYNC_REPLICAS and record.value is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
            )


def _record(resource: ConfigResource, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
