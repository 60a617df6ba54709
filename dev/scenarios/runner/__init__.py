"""What the runs share: their command, the engine around them, the live view, checks, and the look of their pictures."""
