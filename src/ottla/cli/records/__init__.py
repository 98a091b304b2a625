"""`ottla consume` and `ottla produce`."""
