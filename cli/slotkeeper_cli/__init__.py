"""The operator command `slotkeeper`: who holds the slots, who waits, and what may be done about it."""
