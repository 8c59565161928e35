"""What operators keep in memory: Arrow batches by time and by key."""
