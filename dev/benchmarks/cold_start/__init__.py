"""Cold starts: each function in the real Lambda runtime, beside a bare handler that makes the same clients."""
