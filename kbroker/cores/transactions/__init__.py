"""The transaction coordinator, pure: transactions of transactional ids, and the records that hold them."""
