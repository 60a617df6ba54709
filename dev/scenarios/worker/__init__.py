"""`make run-worker`: many requests for a downstream with three callers, which is slow and fails at random."""
