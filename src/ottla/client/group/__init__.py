"""Being a member of a group: joining, staying, sharing partitions, and keeping offsets."""
