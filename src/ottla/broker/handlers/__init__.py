"""A module for each API that is served, named after it; each has one function, `handle`."""
