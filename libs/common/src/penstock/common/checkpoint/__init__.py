"""What a checkpoint is made of, and where each part is."""
