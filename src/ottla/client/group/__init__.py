"""Group membership: joining, heartbeats, assignment and committed offsets."""
