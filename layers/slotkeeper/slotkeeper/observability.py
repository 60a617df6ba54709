"""One logger, one tracer, one set of metrics a function.

Service name, log level and metrics namespace come from the POWERTOOLS_ variables that the template sets.
"""

import logging

from aws_lambda_powertools import Logger, Metrics, Tracer

logger = Logger()
metrics = Metrics()
tracer = Tracer()

# At DEBUG botocore writes every request and answer into the log as it is, with the tokens and secrets in it.
logging.getLogger("botocore").setLevel(logging.INFO)
# As a warning urllib3 writes down the headers that it cannot read: whatever an API repeats there, a token too.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)
