"""One logger, one tracer, one set of metrics a function, and clients made once a container.

Service name, log level and metrics namespace come from the POWERTOOLS_ variables that the template sets.
"""

from aws_lambda_powertools import Logger, Metrics, Tracer
from botocore.config import Config

logger = Logger()
metrics = Metrics()
tracer = Tracer()

# Three attempts of at most seven seconds stay within the starter's 30: a call that hangs must not take the whole
# invocation with it, since what then happened to the message could not even be logged.
CLIENT_CONFIG = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
