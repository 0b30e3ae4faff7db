"""Clicks of a page per minute, counted exactly once. What is counted is kept in a changelog topic."""

import os
from datetime import timedelta

from quixstreams import Application
from quixstreams.dataframe.windows import Count

app = Application(
    broker_address=os.environ["KAFKA"],
    consumer_group="clicks-per-minute",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
)
clicks = app.topic("clicks", value_deserializer="json")
counts = app.topic("counts", value_serializer="json")

counted = app.dataframe(clicks).tumbling_window(timedelta(minutes=1)).agg(clicks=Count()).current()
counted.to_topic(counts)

if __name__ == "__main__":
    app.run()
