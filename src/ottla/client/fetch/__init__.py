"""Reading partitions: where a consumer is in each, what it fetched, how it asks for more."""
