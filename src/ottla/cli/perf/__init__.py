"""`ottla perf`: measurements."""
