"""Circuit breaker, concurrency limit and retry budget of a downstream, whose state all containers share."""
