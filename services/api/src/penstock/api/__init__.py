"""REST, server-sent events and the console: what users want."""
