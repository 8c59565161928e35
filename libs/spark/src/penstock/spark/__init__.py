"""Spark SQL plans run on Arrow batches at streaming cost."""
