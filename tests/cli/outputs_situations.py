"""What `slotkeeper stack outputs` answers for a stack in an account."""

from __future__ import annotations

from tests.cli.operator_account import Operator
from tests.cli.situations import Names, Situation


def _as_deployed(operator: Operator) -> Names:
    return {"queue": operator.outputs["RequestQueueUrl"], "table": operator.outputs["SlotTableName"]}


SITUATIONS = [
    Situation(
        name="an operator asks for names and URLs",
        state=_as_deployed,
        question="stack outputs",
        says=("RequestQueueUrl ", "  {queue}\n", "SlotTableName ", "  {table}\n"),
        never=("export ", "not deployed"),
        shows={
            "stack": "slotkeeper",
            "local": False,
            "outputs.RequestQueueUrl": "{queue}",
            "export.REQUEST_QUEUE_URL": "{queue}",
            "export.SLOT_TABLE_NAME": "{table}",
            "unset": [],
            "not_deployed": [],
        },
    ),
    Situation(
        name="a shell takes them, with the user's own credentials",
        state=_as_deployed,
        question="stack outputs --export --profile mine",
        says=(
            "export SLOTKEEPER_STACK=slotkeeper\nexport AWS_REGION=us-east-1\nexport AWS_DEFAULT_REGION=us-east-1\n"
            "export AWS_PROFILE=mine\n",
            "export REQUEST_QUEUE_URL={queue}\n",
            "export SLOT_TABLE_NAME={table}\n",
        ),
        never=("AWS_ACCESS_KEY_ID", "AWS_SECRET", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL", "SLOTKEEPER_LOCAL", "unset"),
    ),
]
