"""Rate: how many requests start of those that a rate allows."""
