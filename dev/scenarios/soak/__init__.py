"""`make soak`: the deployed stack under faults for minutes, its engine restarted on the way, and what it recorded."""
