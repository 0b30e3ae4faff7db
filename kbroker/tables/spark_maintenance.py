"""Maintenance of a large table as a job of Spark, which needs this file and no other of kbroker::

    spark-submit --packages ... $(kbroker table maintain --spark-job) delta:s3a://lake/orders --keep 7d
    spark-submit --packages ... $(kbroker table maintain --spark-job) iceberg:catalog.lake.orders

It merges small files, removes what no version within ``--keep`` needs, and what no version names. A follower goes on
meanwhile; one that keeps a table by key may do a commit again. The session is the user's: its packages, its settings
and its catalogs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WEEK_HOURS: Final = 7 * 24
FEWEST_HOURS: Final = 24
"""Files that are younger may be some that a follower has not committed yet."""
SIZE: Final = 512 << 20
_TRIES: Final = 5
_CONFLICT: Final = re.compile(
    "CommitFailedException|Cannot commit rewrite|Missing required files|Manifest is missing|DELTA_CONCURRENT_"
    "|could not be found in the latest snapshot"
)
_UNITS: Final = {"h": 1, "d": 24}


def maintain(
    spark: SparkSession,
    table: str,
    *,
    keep_hours: int = WEEK_HOURS,
    where: str | None = None,
    order_by: str | None = None,
    size: int = SIZE,
) -> dict[str, int]:
    """Merge the small files of a table, and of its dead letters, and remove the old ones; what was done.

    ``table`` is ``delta:PATH`` or ``iceberg:CATALOG.NAMESPACE.TABLE``, ``where`` a condition that names partitions,
    ``order_by`` columns by whose values rows are put together. ``ValueError`` for what is none, ``TimeoutError`` if
    others commit all the time.
    """
    kind, _, name = table.partition(":")
    if kind not in ("delta", "iceberg") or not name:
        raise ValueError(f"{table!r} is not delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
    if keep_hours < FEWEST_HOURS:
        raise ValueError(f"less than {FEWEST_HOURS} hours would take files that a follower is about to commit")
    step = _maintain_delta if kind == "delta" else _maintain_iceberg
    done = step(spark, name, keep_hours, where, order_by, size)
    dead = f"{name.rstrip('/')}_dead_letters" if kind == "delta" else f"{quoted(name)[:-1]}_dead_letters`"
    if _is_there(spark, _at(dead) if kind == "delta" else dead):
        for each, count in step(spark, dead, keep_hours, None, None, size).items():
            done[each] += count
    return done


def _is_there(spark: SparkSession, name: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        return bool(spark.table(name).schema)
    except AnalysisException:
        return False


def _maintain_delta(
    spark: SparkSession, path: str, keep_hours: int, where: str | None, order_by: str | None, size: int
) -> dict[str, int]:
    settings = {
        "spark.databricks.delta.optimize.maxFileSize": str(size),
        "spark.databricks.delta.optimize.minFileSize": str(size),
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # `maintain` has looked at it
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    name = _at(path)
    try:
        chosen = f" WHERE {where}" if where else ""
        order = f" ZORDER BY ({order_by})" if order_by else ""
        optimize = f"OPTIMIZE {name}{chosen}{order}"
        metrics = _between_commits(path, lambda: spark.sql(optimize).collect())[0]["metrics"]
        gone = spark.sql(f"VACUUM {name} RETAIN {keep_hours} HOURS DRY RUN").count()
        spark.sql(f"VACUUM {name} RETAIN {keep_hours} HOURS")
    finally:
        for each, earlier in before.items():
            if earlier is None:
                spark.conf.unset(each)
            else:
                spark.conf.set(each, earlier)
    return {"merged_files": metrics["numFilesRemoved"], "new_files": metrics["numFilesAdded"], "removed_files": gone}


def _maintain_iceberg(
    spark: SparkSession, name: str, keep_hours: int, where: str | None, order_by: str | None, size: int
) -> dict[str, int]:
    catalog, _, table = quoted(name).partition(".")
    oldest = (datetime.now(UTC) - timedelta(hours=keep_hours)).strftime("%Y-%m-%d %H:%M:%S")

    def call(procedure: str, *arguments: str) -> list[Any]:
        words = ", ".join([f"table => {_text(table)}", *arguments])
        return _between_commits(name, lambda: spark.sql(f"CALL {catalog}.system.{procedure}({words})").collect())

    rewrite = [f"options => map('target-file-size-bytes', '{size}', 'min-input-files', '2')"]
    if where:
        rewrite.append(f"where => {_text(where)}")
    if order_by:
        rewrite += ["strategy => 'sort'", f"sort_order => {_text(order_by)}"]
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        [files] = call("rewrite_data_files", *rewrite)
        call("rewrite_manifests")
        gone = 0
        if not spark.sql(f"SHOW TBLPROPERTIES {quoted(name)}").where("key = 'gc.enabled' AND value = 'false'").count():
            [expired] = call("expire_snapshots", f"older_than => TIMESTAMP '{oldest}'")
            gone = sum(value for each, value in expired.asDict().items() if each.startswith("deleted_") and value)
            gone += len(call("remove_orphan_files", f"older_than => TIMESTAMP '{oldest}'"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    return {
        "merged_files": files["rewritten_data_files_count"],
        "new_files": files["added_data_files_count"],
        "removed_files": gone,
    }


def _between_commits(table: str, step: Callable[[], list[Any]]) -> list[Any]:
    """Do a step again if a follower's commits came before its own; ``TimeoutError`` if they always do."""
    for _ in range(_TRIES):
        try:
            return step()
        except Exception as error:
            if not _CONFLICT.search(str(error)):
                raise
    raise TimeoutError(f"others commit to {table} all the time: try again later")


def quoted(name: str) -> str:
    """Returns the name of a table as SQL takes it: that of a topic may have a dash."""
    parts = re.findall(r"`(?:[^`]|``)*`|[^.`]+", name)
    return ".".join(each if each.startswith("`") else f"`{each}`" for each in parts)


def _at(path: str) -> str:
    return "delta.`" + path.replace("`", "``") + "`"


def _text(words: str) -> str:
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _hours(text: str) -> int:
    match = re.fullmatch(r"(\d+)([hd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours or days such as 7d")
    return int(match[1]) * _UNITS[match[2]]


def main() -> None:
    """Run the job of the command line."""
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description="Merge the small files of a table, and remove old ones.")
    parser.add_argument("table", help="delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
    parser.add_argument("--keep", type=_hours, default=WEEK_HOURS, metavar="DURATION", help="versions that stay (7d)")
    parser.add_argument("--where", metavar="CONDITION", help="only partitions such as \"day >= '2026-11-01'\"")
    parser.add_argument("--order-by", metavar="COLUMNS", help="put rows with like values of these columns together")
    parser.add_argument("--file-size", type=int, default=SIZE, metavar="BYTES", help="bytes of a file (512 MiB)")
    asked = parser.parse_args()
    spark = SparkSession.builder.appName(f"maintain {asked.table}").getOrCreate()
    try:
        done = maintain(
            spark, asked.table, keep_hours=asked.keep, where=asked.where, order_by=asked.order_by, size=asked.file_size
        )
    except (ValueError, TimeoutError) as error:
        parser.error(str(error))
    finally:
        spark.stop()
    print(
        ", ".join(
            f"{count:,} {name.replace('_', ' ').rstrip('s' if count == 1 else '')}" for name, count in done.items()
        )
    )


if __name__ == "__main__":
    main()
