"""Subtasks, channels, sources and sinks around one Spark session."""
