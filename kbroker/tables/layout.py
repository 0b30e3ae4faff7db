"""The properties of a table: its topic and values, and its layout: flat, in partitions, near to each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow
import pyarrow.compute

from kbroker.tables.columns import TIME
from kbroker.tables.plan import Kept, Refused
from kbroker.tables.target import PAUSED
from kbroker.value_types import NamedTuple

TOPIC: Final = "kbroker.topic"
TOPIC_ID: Final = "kbroker.topic.id"
_VALUE: Final = "kbroker.value"
_DECLARED: Final = "kbroker.schema"
_WAY: Final = "kbroker.way"
_PART: Final = re.compile(r"(?:(day|hour|month)\((\w+)\)|(\w+))")
_FLATTEN: Final = "kbroker.flatten"
_PARTITION: Final = "kbroker.partition-by"
_CLUSTER: Final = "kbroker.cluster-by"


class Part(NamedTuple):
    """A column by which a table is partitioned, or the day, hour or month of one."""

    column: str
    unit: str = ""

    @property
    def name(self) -> str:
        """The name of the partition's own column."""
        return f"{self.column}_{self.unit}" if self.unit else self.column

    @property
    def type(self) -> pyarrow.DataType:
        """The type of a day, hour or month."""
        return TIME if self.unit == "hour" else pyarrow.date32()

    def of(self, column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
        """The beginning of each value's day, hour or month, in UTC."""
        moments = column.cast(pyarrow.timestamp("us"))
        begins = pyarrow.compute.floor_temporal(moments, unit=self.unit)
        return begins.cast(pyarrow.int64()).cast(TIME) if self.unit == "hour" else begins.cast(pyarrow.date32())


def parse_partition(text: str) -> str:
    """The canonical form of ``day(_timestamp),customer``; ``ValueError``."""
    parts = [each.strip() for each in text.split(",")]
    if not all(map(_PART.fullmatch, parts)) or len({*parts}) < len(parts):
        raise ValueError(f"{text!r} is not a list of fields, day(FIELD), hour(FIELD) or month(FIELD)")
    return ",".join(parts)


def parse_cluster(text: str) -> str:
    """The canonical form of ``customer, city``; ``ValueError``."""
    names = [each.strip() for each in text.split(",")]
    if not all(re.fullmatch(r"\w+", each) for each in names) or len({*names}) < len(names):
        raise ValueError(f"{text!r} is not a list of fields")
    return ",".join(names)


class Layout(NamedTuple):
    """The layout that is wanted, where nothing means as the table has it, or that of a table."""

    flatten: bool = False
    partition_by: str = ""
    cluster_by: str = ""

    @staticmethod
    def of(properties: Mapping[str, str]) -> Layout:
        """The layout that the properties of a table tell."""
        return Layout(_FLATTEN in properties, properties.get(_PARTITION, ""), properties.get(_CLUSTER, ""))

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the table that has it."""
        told = {_FLATTEN: "true" if self.flatten else "", _PARTITION: self.partition_by, _CLUSTER: self.cluster_by}
        return {name: text for name, text in told.items() if text}

    @property
    def parts(self) -> list[Part]:
        """The columns of `partition_by`."""
        found = [_PART.fullmatch(each) for each in self.partition_by.split(",") if each]
        return [Part(each[2] or each[3], each[1] or "") for each in found if each]

    @property
    def cluster(self) -> list[str]:
        """The columns of `cluster_by`."""
        return self.cluster_by.split(",") if self.cluster_by else []

    def missing(self, schema: pyarrow.Schema) -> str | None:
        """The first column that it names and a schema has not."""
        named = [*(each.column for each in self.parts), *self.cluster]
        return next((each for each in named if schema.get_field_index(each) < 0), None)

    def check_columns(self, schema: pyarrow.Schema) -> None:
        """``Refused`` if a table cannot be partitioned by one of these columns."""
        types = pyarrow.types
        for name in self.cluster:
            if types.is_nested(schema.field(name).type):
                raise Refused(f"--cluster-by {name}: it has fields or elements, and no order")
        for part in self.parts:
            kind = schema.field(part.column).type
            if part.unit and not types.is_timestamp(kind) and (part.unit == "hour" or not types.is_date(kind)):
                raise Refused(f"--partition-by {part.unit}({part.column}): it is {kind}, and no time")
            if types.is_nested(kind) or types.is_binary(kind) or types.is_floating(kind):
                raise Refused(f"--partition-by {part.column}: no table is partitioned by {kind}")
            if part.unit and schema.get_field_index(part.name) >= 0:
                raise Refused(f"--partition-by {part.unit}({part.column}): there is a field {part.name}")

    def check(self, kept: Layout, where: str) -> None:
        """``Refused`` if a table is kept that has another layout than this one, which is wanted."""
        if self.flatten and not kept.flatten:
            raise Refused(f"{where} has nested values: leave out --flatten, or name another place")
        for option, done, wanted, has in (
            ("--partition-by", "partitioned", self.partition_by, kept.partition_by),
            ("--cluster-by", "clustered", self.cluster_by, kept.cluster_by),
        ):
            if wanted and wanted != has:
                found = f"{done} by {has}" if has else f"not {done}"
                raise Refused(f"{where} is {found}: leave out {option}, or name another place")


def properties_of(kept: Kept) -> dict[str, str]:
    """Returns the properties of a table by which `kept_of` knows it again, but for its positions."""
    told = {TOPIC: kept.topic, TOPIC_ID: kept.topic_id, _VALUE: kept.value_format, _DECLARED: kept.declared}
    return {name: text for name, text in {**told, _WAY: kept.way, **kept.layout}.items() if text}


def kept_of(told: Mapping[str, str], positions: Mapping[int, int], where: str) -> Kept:
    """Returns what a table's properties say; ``Refused`` if the table is nobody's of kbroker."""
    if TOPIC not in told or TOPIC_ID not in told:
        raise Refused(f"{where} is a table, but none that kbroker made: name another one")
    value_format, declared, layout = told.get(_VALUE, "bytes"), told.get(_DECLARED, ""), Layout.of(told).properties
    paused = told.get(PAUSED) == "true"
    return Kept(told[TOPIC], told[TOPIC_ID], value_format, positions, declared, layout, told.get(_WAY, ""), paused)
