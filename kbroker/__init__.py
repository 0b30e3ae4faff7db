"""kbroker: Apache Kafka's broker, reimplemented in Python on Trio."""

__version__ = "0.1.0"
