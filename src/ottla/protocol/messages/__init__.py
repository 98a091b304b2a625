"""The messages, one module per API."""
