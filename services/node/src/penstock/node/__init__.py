"""Worker processes of one machine: slots, supervision, warm standby."""
