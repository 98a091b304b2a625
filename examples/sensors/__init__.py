"""The sensors example: 200 simulated devices send readings, and a pipeline evaluates them.

`make run` runs it. The pipeline is pipeline.yml, and the devices are devices.py.
"""
