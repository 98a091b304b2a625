"""`ottla partition`, and what other commands need to move replicas."""
