"""Rows between the workers of a job: Arrow over one connection for each pair of them, with credits for each channel."""
