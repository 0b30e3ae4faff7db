"""Kafka's wire protocol: bytes to objects and back. No clock, no IO.

Requests are answered in `kbroker.handlers`; batches of records get their offsets in `kbroker.log`. Begin with `schema`,
which declares messages, and `compiler`, which makes codecs of them; `record_batch` reads and writes records.
"""
