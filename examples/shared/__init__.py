"""Runs an example on one machine: a broker, generated input, a job on Spark, and a live view.

An example describes itself (`example.py`), and `runner.py` runs it.
"""
