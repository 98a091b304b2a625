"""Inspects the files of a log without changing them: lists their content, and verifies it.

Invariant: files are opened and read, never locked, written, renamed or removed, so a broker may run
at the same time. Memory is bounded for every input.
"""
