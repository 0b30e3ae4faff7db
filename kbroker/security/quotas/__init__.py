"""Quotas of clients and rates of traffic, without a clock of their own: the time is an argument."""
