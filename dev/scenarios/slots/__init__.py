"""Requests through the queue, for a Glue job or a state machine."""
