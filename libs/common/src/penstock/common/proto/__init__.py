"""Generated from proto/ by `make proto`; see proto/README.md."""
