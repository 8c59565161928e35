"""Checkpoints and savepoints: deciding, doing, keeping and restoring them."""
