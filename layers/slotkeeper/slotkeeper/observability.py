"""One logger, one tracer, one set of metrics a function.

Service name, log level and metrics namespace come from the POWERTOOLS_ variables that the template sets.
"""

from aws_lambda_powertools import Logger, Metrics, Tracer

logger = Logger()
metrics = Metrics()
tracer = Tracer()
