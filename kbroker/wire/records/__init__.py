"""Schemas of the records that Kafka keeps in its internal topics and logs, and of the consumer protocol.

Batches of records are in `kbroker.wire.record_batch`; values are made of these records beside the core that writes
them (`records` there). Begin with `versioned`, which has the form that they share, or with `metadata`.
"""
