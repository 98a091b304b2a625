"""The logs example: a collector follows the log files of services, and a pipeline counts errors.

`make run EXAMPLE=logs` runs it. The pipeline is pipeline.yml, and the services are services.py.
"""
