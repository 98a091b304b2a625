"""Hand-written codecs for the hot paths: Produce and Fetch, in their flexible versions.

Invariant: a hand-written codec reads and writes the same bytes as the compiled codec of the same
version, and raises the same errors. It handles only plain messages, which nearly all are. It leaves
every other message to the compiled codec, malformed bytes included. Every bound on what a peer may
send is therefore checked in one place, and a new tagged field needs no change here.

Each module registers its codecs when it is imported; `Message` imports it with the first message of
the API that is read or written. Records are not copied: a reader returns slices of a memoryview,
a writer appends them as buffers of their own. `docs/decisions/0004` has the measurements.
"""
