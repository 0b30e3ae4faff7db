"""The cases through kafka-python."""

from compat_tests.suite import suite

test_case, client = suite("kafka-python")
