"""Who of a classic group reads which partition, decided by the member that leads it."""
