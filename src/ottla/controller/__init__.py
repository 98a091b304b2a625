"""The controller: decides about brokers, topics and partitions and stores that in coordination."""
