"""The report of failures: causes, numbers, and the next steps of an operator."""
