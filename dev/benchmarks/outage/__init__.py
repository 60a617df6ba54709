"""The worker and a fragile downstream in virtual time."""
