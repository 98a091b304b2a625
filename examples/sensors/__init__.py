"""The sensors example: 200 simulated devices send readings, and a job on Spark evaluates them.

`make run` runs it. The job is job.py, and the devices are devices.py.
"""
