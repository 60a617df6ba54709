"""The shared token beside two rivals: one invalidation that many instances meet at once."""
