"""Python functions in SQL: what their hints mean, and how they are called.

This is what runs beside the user's code, in processes of its own; so it imports little.
"""
