"""What a reader opens: the data source of Spark, batch and stream, and the log without Spark."""
