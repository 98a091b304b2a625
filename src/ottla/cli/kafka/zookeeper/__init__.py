"""`zookeeper-server-start`, `zookeeper-server-stop` and `zookeeper-shell`."""
