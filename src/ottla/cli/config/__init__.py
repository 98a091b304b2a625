"""`ottla config`: settings and quotas."""
