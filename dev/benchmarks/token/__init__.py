"""The shared token next to two alternatives: one invalidation that many instances notice together."""
