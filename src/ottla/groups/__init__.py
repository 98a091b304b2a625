"""Consumer groups: who belongs to a group, what each member consumes, how far it has come."""
