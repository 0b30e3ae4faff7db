"""The real pipeline, whole: 336,776 flights produced, read as a batch and as a stream, compared with pandas.

This is what `make demo` shows; here its result is held against what the data set is known to contain.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark_examples import demo

FLIGHTS = 336_776
CANCELLED = 8_255
CARRIERS = 16


def test_flights_through_the_broker_and_spark_equal_the_source_data(
    bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    result = demo.run(bootstrap, tmp_path, topic=new_name())

    assert result.differences() == []
    assert result.produced == FLIGHTS
    assert sorted(result.per_partition) == list(range(6))
    assert sum(result.per_partition.values()) == FLIGHTS
    # 100,000 offsets a trigger, shared among the partitions: four micro-batches, and none when run again.
    assert (result.stream_rows, result.stream_batches, result.second_run_rows) == (FLIGHTS, 4, 0)
    assert len(result.batch) == CARRIERS
    assert sum(delay.flights - delay.departed for delay in result.batch) == CANCELLED
    # Known apart from pandas, to the printed digits: United is in the middle, Frontier late, Hawaiian on time.
    means = {delay.carrier: round(delay.mean_delay_minutes, 4) for delay in result.stream}
    assert (means["UA"], means["F9"], means["HA"]) == (12.1061, 20.2155, 4.9006)

    plot = tmp_path / "plot.png"
    demo.save_plot(result, plot)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert demo.comparison_table(result).count("equal") == CARRIERS


def test_a_difference_is_named(bootstrap: str, new_name: Callable[[], str], tmp_path: Path) -> None:
    """The comparison is no decoration: a wrong mean and a missing row are both said."""
    from dataclasses import replace

    result = demo.run(bootstrap, tmp_path, topic=new_name(), limit=2_000)
    assert result.differences() == []

    off_by_a_bit = [replace(d, mean_delay_minutes=d.mean_delay_minutes * (1 + 2**-50)) for d in result.batch]
    wrong = replace(result, batch=off_by_a_bit, stream_rows=1_999)
    assert any("rows of the stream: 1,999 instead of 2,000" in line for line in wrong.differences())
    assert any(line.startswith("batch: differs from pandas for carriers") for line in wrong.differences())
