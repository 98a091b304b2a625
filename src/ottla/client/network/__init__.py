"""Reaching a cluster: its brokers, who leads and who coordinates, connections and logins."""
