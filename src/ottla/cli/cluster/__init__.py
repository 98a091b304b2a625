"""`ottla cluster` and `ottla api-versions`."""
