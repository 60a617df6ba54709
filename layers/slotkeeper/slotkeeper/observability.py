"""The logger, the tracer and the metrics of a function.

Service name, log level and metrics namespace come from the POWERTOOLS_ variables that the template sets. Without a
variable for the namespace it is `Slotkeeper`; otherwise Powertools would raise at the end of each invocation.
"""

import logging
import os
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

logger = Logger()
_NAMESPACE = os.environ.get("POWERTOOLS_METRICS_NAMESPACE") or "Slotkeeper"
metrics = Metrics(namespace=_NAMESPACE)
if TYPE_CHECKING:
    tracer: Tracer

# At DEBUG botocore logs every request and answer unchanged, with the tokens and secrets in them.
logging.getLogger("botocore").setLevel(logging.INFO)
# At WARNING urllib3 logs headers that it cannot parse, in which an API may repeat a token.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


def __getattr__(name: str) -> Tracer:
    """Make `tracer` when it is first imported, which only functions do.

    Outside Lambda the import of the X-Ray SDK creates two clients, a third of the operator command's start.
    """
    if name != "tracer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Traces calls of AWS only. By default Powertools searches for a dozen other libraries in every cold start, and
    # loads SQLite for that.
    made = globals()["tracer"] = Tracer(patch_modules=["botocore"])
    return made


def measure_process(process: str, unit: MetricUnit, *, of_priority: str = "", **values: float) -> None:
    """Write metrics (name=value) of one process, with the dimensions `service` and `process`.

    Args:
        of_priority: if not empty, also write them with the further dimension `priority`. That is another metric: the
            one without it covers all priorities.

    Call it only for processes that exist: CloudWatch bills each process name as a separate metric, also a wrong name
    from a message.
    """
    # A dimension of `metrics` would apply to all metrics of the invocation.
    for dimensions in ({}, {"priority": of_priority}) if of_priority else ({},):
        own = EphemeralMetrics(namespace=_NAMESPACE)
        for dimension, its_value in {"process": process, **dimensions}.items():
            own.add_dimension(dimension, its_value)
        for name, value in values.items():
            own.add_metric(name, unit, value)
        own.flush_metrics()
