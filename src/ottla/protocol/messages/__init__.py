"""The tables of messages: a module for each API, named like it."""
