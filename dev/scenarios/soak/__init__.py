"""`make soak`: the deployed stack under faults and engine restarts for minutes, and its records."""
