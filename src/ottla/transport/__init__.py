"""Connections: those that clients open to a broker, and what bounds them."""
