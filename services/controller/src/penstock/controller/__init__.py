"""The job state machine, scheduling and coordination."""
