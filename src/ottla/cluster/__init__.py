"""What a cluster is made of: brokers, topics, partitions, and the decisions about them."""
