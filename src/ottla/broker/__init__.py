"""The broker: dispatch, one handler per API, and the node that runs them."""
