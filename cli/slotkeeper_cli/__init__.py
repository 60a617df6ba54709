"""The operator command `slotkeeper`."""
