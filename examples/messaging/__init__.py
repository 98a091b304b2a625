"""The messaging example: an order, a stock and a mail service that talk through topics.

`make run EXAMPLE=messaging` runs it. The services are services.py; what they have in common is
service.py, and request and reply are requests.py.
"""
