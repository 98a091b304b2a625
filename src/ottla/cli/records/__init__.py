"""Records, read and written: what `ottla consume` and `ottla produce` do."""
