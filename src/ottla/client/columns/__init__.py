"""Columns: records as Arrow has them, and what their values are."""
