"""`make run-worker`: many requests at once for a downstream that takes three callers, is slow and fails at random."""
