"""Checks of a deployed stack on real AWS: the facts that no engine on one's own machine can show (docs/smoke.md)."""
