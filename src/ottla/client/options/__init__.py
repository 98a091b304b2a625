"""From a client's settings to the rules of its parts, a module for each kind of client."""
