"""SQL in, Program out, with diagnostics."""
