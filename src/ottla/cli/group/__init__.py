"""`ottla group`: consumer groups."""
