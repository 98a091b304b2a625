"""Groups of consumers: what `ottla group` does."""
