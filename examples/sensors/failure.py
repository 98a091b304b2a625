"""A failure that ends the example.

Invariant: its text is all that the user has to be told.
"""


class Failed(Exception):
    """It cannot go on; the text says why."""
