"""Clicks of each page are counted in a table, which outlives the workers in a changelog topic."""

import os

import faust

app = faust.App(
    "clicks",
    broker="kafka://" + os.environ["KAFKA"].replace(",", ";"),
    store="memory://",
    topic_replication_factor=int(os.environ.get("REPLICAS", "3")),
    topic_partitions=4,
)


class Click(faust.Record, serializer="json"):
    page: str


clicks = app.topic("clicks", key_type=str, value_type=Click)
totals = app.topic("totals", key_type=str, value_type=int)
counts = app.Table("counts", default=int, key_type=str, value_type=int)


@app.agent(clicks)
async def count(stream):
    async for click in stream:
        counts[click.page] += 1
        await totals.send(key=click.page, value=counts[click.page])
