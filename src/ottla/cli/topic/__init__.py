"""Topics: what `ottla topic` does."""
