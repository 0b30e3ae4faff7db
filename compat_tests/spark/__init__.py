"""PySpark 4.2.0 and its Kafka connector, unchanged, as judges of a broker."""
