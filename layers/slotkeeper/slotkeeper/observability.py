"""One logger, one tracer, one set of metrics a function.

Service name, log level and metrics namespace come from the POWERTOOLS_ variables that the template sets.
"""

import logging

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

logger = Logger()
metrics = Metrics()
# Calls of AWS. By default Powertools looks for a dozen other libraries in every cold start, and loads SQLite for that.
tracer = Tracer(patch_modules=["botocore"])

# At DEBUG botocore writes every request and answer into the log as it is, with the tokens and secrets in it.
logging.getLogger("botocore").setLevel(logging.INFO)
# As a warning urllib3 writes down the headers that it cannot read: whatever an API repeats there, a token too.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


def measure_process(process: str, unit: MetricUnit, **values: float) -> None:
    """Writes metrics that every process has for itself: name=value, under the dimensions `service` and `process`.

    Only for processes that exist. Each of them is a metric of its own on the bill, and a name that a message made up
    would be one too.
    """
    own = EphemeralMetrics()  # the dimensions of `metrics` hold for all that an invocation adds there
    own.add_dimension("process", process)
    for name, value in values.items():
        own.add_metric(name, unit, value)
    own.flush_metrics()
