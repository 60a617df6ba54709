"""Retries that outlive the queue, for any consumer of SQS messages."""
