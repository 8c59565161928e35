"""Operators with state, each a link of a chain."""
