"""The shape that the group and the transaction coordinator share: pure cores that return records and replies."""
