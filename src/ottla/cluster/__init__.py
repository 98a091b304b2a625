"""The cluster model: brokers, topics and partitions, and the decisions about them."""
