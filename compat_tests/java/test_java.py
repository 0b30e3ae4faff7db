"""The cases through Kafka's Java clients."""

from compat_tests.suite import suite

test_case, client = suite("java")
