"""JSON as values of Python, and its reader, from below: `kbroker.records_io.json_types`."""

from kbroker.records_io.json_types import Json, load_json, to_bytes

__all__ = ["Json", "load_json", "to_bytes"]
