"""Words are counted: from the topic `lines` to the topic `counts`, with what was counted so far as state."""

import os

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow

brokers = os.environ["KAFKA"].split(",")


def words(message):
    return [(word, 1) for word in message.value.decode().split()]


def add(count, one):
    count = (count or 0) + one
    return count, count


def to_message(counted):
    word, count = counted
    return KafkaSinkMessage(word.encode(), str(count).encode())


flow = Dataflow("word-count")
lines = kop.input("lines", flow, brokers=brokers, topics=["lines"])
op.inspect("trouble", lines.errs)
counts = op.stateful_map("count", op.flat_map("words", lines.oks, words), add)
kop.output("counts", op.map("message", counts, to_message), brokers=brokers, topic="counts")
