"""`ottla profile`: named connection settings."""
