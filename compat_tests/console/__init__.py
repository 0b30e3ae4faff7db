"""The console in a real browser, on kbroker and on Apache Kafka."""
