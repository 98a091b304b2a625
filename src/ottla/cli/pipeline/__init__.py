"""`ottla pipeline`: declared pipelines."""
