"""Checks of a deployed stack on real AWS: the facts that local engines cannot show (dev/smoke/README.md)."""
