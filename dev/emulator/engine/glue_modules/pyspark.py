"""Refuses the import of Spark, with the reason. Only the scripts of the embedded Glue can import this module."""

raise ModuleNotFoundError(
    "pyspark is not available here: the embedded Glue runs plain Python. Test this script in AWS Glue or in its "
    "Docker image",
    name="pyspark",
)
