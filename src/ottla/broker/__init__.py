"""The broker: requests, the handlers that answer them, and the node that holds it all."""
