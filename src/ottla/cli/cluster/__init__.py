"""The cluster and its brokers: what `ottla cluster` and `ottla api-versions` do."""
