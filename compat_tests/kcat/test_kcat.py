"""The cases through kcat."""

from compat_tests.suite import suite

test_case, client = suite("kcat")
