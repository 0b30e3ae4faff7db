"""A Go module that starts kbroker for a test and speaks its control, and a test that uses it."""
