"""`ottla log`: log files."""
