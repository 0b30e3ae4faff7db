"""Values of configs with units, as people write them: ``1d``, ``64MiB``. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from kbroker.client.records_io.times import parse_duration

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([kKMGT]i?)B?")
_FACTORS: Final = {"k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


def in_kafkas_units(name: str, value: str) -> str:
    """Returns the value of a config as Kafka has it: `1d` of `retention.ms` in ms, `64MiB` of `segment.bytes` in bytes.

    A space may be before the unit. Any other value is returned as it is, for the broker to judge.
    """
    close = value.replace(" ", "")
    if name.endswith(".ms"):
        with suppress(ValueError):
            return str(parse_duration(close))
    size = _SIZE.fullmatch(close) if name.endswith(".bytes") else None
    if size is None:
        return value
    unit = size[2]
    factor = 1024 ** ("KMGT".index(unit[0].upper()) + 1) if unit.endswith("i") else _FACTORS[unit]
    return str(round(float(size[1]) * factor))
