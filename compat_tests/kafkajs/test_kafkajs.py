"""The cases through kafkajs."""

from compat_tests.suite import suite

test_case, client = suite("kafkajs")
