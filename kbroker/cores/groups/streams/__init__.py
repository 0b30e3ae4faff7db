"""Streams groups (KIP-1071): topologies, tasks and members of Kafka Streams applications, as pure values."""
