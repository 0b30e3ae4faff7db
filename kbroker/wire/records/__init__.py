"""Schemas of the records that Kafka keeps in its internal topics and logs, and of the consumer protocol."""
