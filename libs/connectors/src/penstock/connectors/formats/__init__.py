"""The formats that connectors read and write."""
