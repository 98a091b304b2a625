"""Stand-ins for what the world does to a broker: disks that forget, clocks that obey.

Imported by nothing else of Ottla; for its own tests and for its users'.
"""
