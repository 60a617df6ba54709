"""The table: all rows."""

from tests.facts import (
    dynamodb_facts,
    event_source_facts,
    execution_facts,
    glue_facts,
    notification_facts,
    schedule_facts,
    sqs_facts,
    state_facts,
    token_facts,
)

FACTS = [
    *dynamodb_facts.FACTS,
    *sqs_facts.FACTS,
    *event_source_facts.FACTS,
    *execution_facts.FACTS,
    *state_facts.FACTS,
    *token_facts.FACTS,
    *glue_facts.FACTS,
    *schedule_facts.FACTS,
    *notification_facts.FACTS,
]
