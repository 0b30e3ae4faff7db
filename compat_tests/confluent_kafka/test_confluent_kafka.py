"""The cases through confluent-kafka."""

from compat_tests.suite import suite

test_case, client = suite("confluent-kafka", peer="kafka-python")
