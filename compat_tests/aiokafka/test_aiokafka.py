"""The cases through aiokafka."""

from compat_tests.suite import suite

test_case, client = suite("aiokafka")
