"""The penstock command and the embedded cluster."""
