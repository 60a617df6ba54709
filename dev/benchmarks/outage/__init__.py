"""An outage of a downstream, in virtual time: the worker with and without watching it, and a plain SQS retry."""
