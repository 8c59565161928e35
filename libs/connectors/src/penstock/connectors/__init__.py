"""Sources and sinks, and the formats that they read and write."""
