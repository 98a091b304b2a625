"""What `ottla doctor` looks at: facts are gathered first, and judged apart from that."""
