"""Connections, metadata, coordinators and authentication of a client."""
