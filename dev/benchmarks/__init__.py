"""Slotkeeper next to other designs (`make bench`)."""
