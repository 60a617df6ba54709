"""Facts of SNS, to which one function publishes notifications."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.facts.account import Account
from tests.facts.facts import DEPLOYED, Facts, code_of, documented
from tests.facts.queues import target

PAGE = "Amazon SNS API Reference, Publish"
FACTS = Facts("notifications", DEPLOYED)


@FACTS.row(
    "A subscriber receives subject and message. A message above 256 KiB is refused, and one to a topic that does not "
    "exist.",
    source=documented(f"{PAGE}, Message and Errors; Amazon SNS Developer Guide, Fanout to Amazon SQS queues"),
    expected=(("failed", '{"reason": "no month"}'), ["accepted", "InvalidParameter", "NotFound"]),
)
def publish_to_a_queue(aws: Account) -> Any:
    sns, queue = aws.client("sns"), target(aws)
    topic = sns.create_topic(Name=aws.name("topic"))["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue.arn)
    sns.publish(TopicArn=topic, Subject="failed", Message='{"reason": "no month"}')
    received = queue.take()
    sent = ((topic, "x" * 262_144), (topic, "x" * 262_145), (f"{topic}-missing", "x"))
    codes = [code_of(partial(sns.publish, TopicArn=to, Message=text)) for to, text in sent]
    return (received["Subject"], received["Message"]), codes
