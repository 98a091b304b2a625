"""Waiting: how long, how often, until when, and how it ends."""
