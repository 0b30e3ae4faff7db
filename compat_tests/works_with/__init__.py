"""Programs around Kafka at work on the broker, each by a recipe that a user would write."""
