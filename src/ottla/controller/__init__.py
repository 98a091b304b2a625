"""The controller: what the cluster is made of, changed and stored through coordination."""
