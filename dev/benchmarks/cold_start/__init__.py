"""Cold starts: each function in the real Lambda runtime, next to a bare handler that creates the same clients."""
