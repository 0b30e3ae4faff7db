"""Short names for the tables of properties."""

from __future__ import annotations

from kbroker.config.definition import ConfigType, Importance, UpdateMode

BOOLEAN = ConfigType.BOOLEAN
CLASS = ConfigType.CLASS
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
PASSWORD = ConfigType.PASSWORD
SHORT = ConfigType.SHORT
STRING = ConfigType.STRING
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
PER_BROKER = UpdateMode.PER_BROKER
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
