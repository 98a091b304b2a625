"""`ottla collect`: copies data from outside into a topic."""
