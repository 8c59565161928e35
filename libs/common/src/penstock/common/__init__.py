"""What every Penstock service shares."""
