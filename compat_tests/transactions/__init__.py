"""Transactions: every client's own use of them, wrong requests compared with Apache Kafka's answers, exactly once."""
