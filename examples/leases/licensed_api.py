"""A Lambda function in front of an API that is licensed for two calls at a time.

The process is added with `slotkeeper process add licence --limit 2`.
"""

import os
from typing import Any

import urllib3

from slotkeeper import slots


def handler(event: dict[str, Any], context: slots.LambdaContext) -> dict[str, Any]:
    try:
        with slots.lease("licence", context, wait=20):
            answer = urllib3.request("POST", os.environ["API_URL"], body=event["body"], retries=False)
    except slots.SlotUnavailable as refused:
        return {"statusCode": 503, "body": str(refused), "headers": {"Retry-After": "20"}}
    return {"statusCode": answer.status, "body": answer.data.decode()}
