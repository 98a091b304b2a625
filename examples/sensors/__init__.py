"""Sensors: 200 devices send readings, and a pipeline on Spark makes sense of them as they come.

`make run` shows it. The job is job.py, and what it does with rows is in transformations.py.
"""
