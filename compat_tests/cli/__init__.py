"""The command ``kbroker`` as a client: what it says about kbroker is what it says about Apache Kafka."""
