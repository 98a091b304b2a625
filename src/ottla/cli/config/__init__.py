"""Settings and quotas: what `ottla config` does."""
