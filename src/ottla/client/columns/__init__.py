"""Columns: Arrow record batches and typed values."""
