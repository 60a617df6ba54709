"""A caller that waits for its request next to one that starts the same child directly."""
