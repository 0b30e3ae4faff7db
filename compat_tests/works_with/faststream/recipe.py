"""Orders become invoices. Each process that is started takes a part of the partitions of `orders`."""

import os

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage, KafkaResponse
from pydantic import BaseModel

broker = KafkaBroker(os.environ["KAFKA"].split(","), enable_idempotence=True)
app = FastStream(broker)


class Order(BaseModel):
    number: int
    pieces: int
    price: float


class Invoice(BaseModel):
    order: int
    total: float
    made_by: int


@broker.publisher("invoices")
@broker.subscriber("orders", group_id="invoicing", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
async def make_invoice(order: Order, message: KafkaMessage) -> KafkaResponse:
    invoice = Invoice(order=order.number, total=order.pieces * order.price, made_by=os.getpid())
    return KafkaResponse(invoice, key=message.raw_message.key)
