"""The consumer: subscriptions, positions, the fetcher and the records that it returns."""
