"""Checks of a deployed stack on real AWS: the facts that local engines cannot show (docs/smoke.md)."""
