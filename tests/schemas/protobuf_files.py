"""Protobuf files for tests, built without a compiler."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

STRING, INT64, BYTES, DOUBLE, MESSAGE = 9, 3, 12, 1, 11


def file_of(name: str, package: str, *messages: descriptor_pb2.DescriptorProto, imports: tuple[str, ...] = ()) -> Any:
    """A file descriptor of proto3."""
    return descriptor_pb2.FileDescriptorProto(
        name=name, package=package, syntax="proto3", message_type=messages, dependency=imports
    )


def message_of(
    name: str, fields: dict[str, int | str], *nested: descriptor_pb2.DescriptorProto
) -> descriptor_pb2.DescriptorProto:
    """A message type; a field's type is a number, or the full name of a message."""
    found = descriptor_pb2.DescriptorProto(name=name, nested_type=nested)
    for number, (field, kind) in enumerate(fields.items(), 1):
        added = found.field.add(name=field, number=number, label=1)
        if isinstance(kind, str):
            added.type, added.type_name = MESSAGE, kind
        else:
            added.type = kind
    return found


def encoded(file: Any) -> str:
    """The file as a registry has it."""
    return base64.b64encode(file.SerializeToString()).decode()


def classes_of(*files: Any) -> Any:
    """A function that gives the class of a full name, out of some files and Protobuf's timestamps."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
