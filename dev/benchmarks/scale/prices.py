"""List prices of us-east-1 in US dollars, on demand, without free tiers, as of November 2026: those of docs/costs.md.

A test holds the two together. Look them up before you rely on them.
"""

from __future__ import annotations

SQS_FIFO = 0.0000005  # a request
SQS_STANDARD = 0.0000004
LAMBDA_INVOCATION = 0.0000002
LAMBDA_GB_SECOND = 0.0000133334  # arm64
LAMBDA_GB = 0.5  # the template's memory
DYNAMODB_WRITE = 0.000000625  # a unit
DYNAMODB_READ = 0.000000125  # a unit, which is a consistent read of up to 4 KB
TRANSITION = 0.000025  # of a Standard workflow
EVENT = 0.000001
LOG_GB = 0.50  # taken in
METRIC_MONTH = 0.30  # a metric of one's own
GLUE_DPU_HOUR = 0.44
GLUE_LEAST = 0.0625  # DPU, of a Python shell job
GLUE_LEAST_HOURS = 0.0166667  # what is billed at least: a minute

# Not on that page, since the product has none (AWS Step Functions pricing).
EXPRESS_REQUEST = 0.000001
EXPRESS_GB_SECOND = 0.00001667
EXPRESS_GB = 0.0625  # billed in steps of 64 MB
