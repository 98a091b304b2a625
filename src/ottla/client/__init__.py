"""The client: producers, consumers and administrators of Ottla and of any Kafka."""
