"""Answers to CloudFormation, and the wait for a role that was made a moment ago."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import backoff
import urllib3
from botocore.exceptions import ClientError

from slotkeeper.observability import logger

ANSWER_SECONDS = 10.0
ANSWER_TRIES = 2  # each has its share of them
ROLE_SECONDS = 30
# In bytes, of a reason or a value as JSON, where one character may take six. CloudFormation takes 4096 altogether (its
# guide, "Custom resource response objects"), refuses more, and goes on waiting.
MAX_TEXT_BYTES = 2000


def answer(
    event: Mapping[str, Any], physical_id: str, *, failed: str = "", data: Mapping[str, str] | None = None
) -> None:
    """Tells CloudFormation what became of a custom resource: done, with `data` for the template, or `failed` and why.

    It must be told in every case: without an answer it waits for an hour (CloudFormation guide, "Custom resources").
    A `physical_id` that differs from the one before is a new resource to it, and it asks to delete the old one.

    Raises:
        urllib3.exceptions.HTTPError: it did not answer, in `ANSWER_SECONDS` altogether.
    """
    body: dict[str, Any] = {
        "Status": "FAILED" if failed else "SUCCESS",
        "PhysicalResourceId": physical_id,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
    }
    body |= (
        {"Reason": _short(failed)} if failed else {"Data": {name: _short(text) for name, text in (data or {}).items()}}
    )
    status = 0
    for tries_left in reversed(range(ANSWER_TRIES)):
        try:
            status = _put(event["ResponseURL"], json.dumps(body))
        except urllib3.exceptions.HTTPError:
            if not tries_left:
                raise
        else:
            if status < 500:
                break
    if status != 200:  # without the URL, by which anybody could answer
        logger.error("CloudFormation did not take the answer, and waits for an hour", status=status)


def _put(url: str, body: str) -> int:
    # CloudFormation signs the URL without a content type; any other header value would break the signature.
    return (
        urllib3.PoolManager(retries=False)
        .request(
            "PUT",
            url,
            body=body,
            headers={"Content-Type": ""},
            timeout=urllib3.Timeout(total=ANSWER_SECONDS / ANSWER_TRIES),
        )
        .status
    )


def _short(text: str) -> str:
    while len(json.dumps(text)) > MAX_TEXT_BYTES:
        text = text[: len(text) * 3 // 4]
    return text


def _is_final(error: Exception) -> bool:
    return not isinstance(error, ClientError) or error.response["Error"]["Code"] != "AccessDeniedException"


# A role that this deployment made a moment ago may not be known everywhere yet (IAM guide, "Changes that I make are not
# always immediately visible").
until_the_role_is_known = backoff.on_exception(
    backoff.expo, ClientError, giveup=_is_final, max_time=ROLE_SECONDS, logger=None
)
