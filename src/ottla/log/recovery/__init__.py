"""Recovery of a log when it is opened: cleanup after a crash, batch scans, rebuilt state."""
