"""SCRAM credentials and the exchange of a SASL login; ACL decisions will be here too."""
