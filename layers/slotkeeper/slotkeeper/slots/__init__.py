"""Slots: a DynamoDB counter with holders that limits how many workflows of a process run at once."""
