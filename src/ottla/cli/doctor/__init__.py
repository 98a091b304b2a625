"""`ottla doctor`: gathers facts and judges them separately."""
