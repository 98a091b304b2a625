"""`ottla topic`: topics."""
