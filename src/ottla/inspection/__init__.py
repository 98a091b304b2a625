"""Looking into the files of a log without touching them: what is in them, and whether it is right.

Invariant: files are opened and read, never locked, written, renamed or removed, so a broker may
run beside it. Memory is bounded whatever the files hold.
"""
