"""Answers to CloudFormation, and the wait for a role that was made a moment ago."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import backoff
import urllib3
from botocore.exceptions import ClientError

ANSWER_SECONDS = 10.0
ROLE_SECONDS = 30
# In bytes, of a reason or a value as JSON, where one character may take six. CloudFormation takes 4096 altogether (its
# guide, "Custom resource response objects"), refuses more, and goes on waiting.
LONGEST_TEXT = 2000


def answer(
    event: Mapping[str, Any], physical_id: str, *, failed: str = "", data: Mapping[str, str] | None = None
) -> None:
    """Tells CloudFormation what became of a custom resource: done, with `data` for the template, or `failed` and why.

    It must be told in every case: without an answer it waits for an hour (CloudFormation guide, "Custom resources").
    A `physical_id` that differs from the one before is a new resource to it, and it asks to delete the old one.
    """
    body: dict[str, Any] = {
        "Status": "FAILED" if failed else "SUCCESS",
        "PhysicalResourceId": physical_id,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
    }
    body |= (
        {"Reason": _short(failed)} if failed else {"Data": {name: _short(said) for name, said in (data or {}).items()}}
    )
    # CloudFormation signs the URL without a content type; any other header value would break the signature.
    urllib3.PoolManager().request(
        "PUT", event["ResponseURL"], body=json.dumps(body), headers={"Content-Type": ""}, timeout=ANSWER_SECONDS
    )


def _short(text: str) -> str:
    while len(json.dumps(text)) > LONGEST_TEXT:
        text = text[: len(text) * 3 // 4]
    return text


def _is_final(error: Exception) -> bool:
    return not isinstance(error, ClientError) or error.response["Error"]["Code"] != "AccessDeniedException"


# A role that this deployment made a moment ago may not be known everywhere yet (IAM guide, "Changes that I make are not
# always immediately visible").
until_the_role_is_known = backoff.on_exception(
    backoff.expo, ClientError, giveup=_is_final, max_time=ROLE_SECONDS, logger=None
)
