"""Files of logs: what `ottla log` does."""
