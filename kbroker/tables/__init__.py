"""Topics as tables of Delta Lake and Iceberg, exactly once: what the command ``kbroker table`` does.

The libraries read and write tables. Here offset ranges are planned (`plan`), records become rows (`rows`,
`json_kinds`; by a schema registry `schema_values`, `json_schema`) in the columns of the table (`columns`, `layout`),
and rows are committed together with how far they go (`follower`, into a `target`: `delta`, `iceberg`, perhaps in
`stores`), from a cluster or a log directory (`sources`); a follower tells its state beside the table (`status`). Needs
the extra ``kbroker[delta]`` or ``kbroker[iceberg]``; nothing but the command imports this. Begin with `follower`.
`spark_union` is for Spark's users.
"""

from kbroker.tables.spark_reading import spark_union

__all__ = ["spark_union"]
