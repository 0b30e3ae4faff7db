"""kbroker and Apache Kafka 4.3.1 side by side in one run: `python -m benchmarks --help`."""
