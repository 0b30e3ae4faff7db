"""kbroker and Apache Kafka 4.4.0 side by side in one run: `python -m benchmarks --help`."""
