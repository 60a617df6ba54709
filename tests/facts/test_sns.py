"""Facts of SNS, to which one function publishes notifications."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, code_of, documented
from tests.facts.workflows import Workflows, unique

PAGE = "Amazon SNS API Reference, Publish"
FACTS: Facts[Workflows] = Facts()


@FACTS.row(
    "A subscriber receives subject and message.",
    source=documented(f"{PAGE}; Amazon SNS Developer Guide, Fanout to Amazon SQS queues"),
    expected=("a request of p failed", '{"reason": "no month"}'),
)
def publish_to_a_queue(workflows: Workflows) -> Any:
    sns, (url, queue) = workflows.client("sns"), workflows.queue()
    topic = sns.create_topic(Name=unique("topic"))["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
    sns.publish(TopicArn=topic, Subject="a request of p failed", Message='{"reason": "no month"}')
    received = workflows.receive(url)
    return received["Subject"], received["Message"]


@FACTS.row(
    "A message above 256 KiB is refused, and one to a topic that does not exist.",
    source=documented(f"{PAGE}, Message and Errors"),
    expected=["accepted", "InvalidParameter", "NotFound"],
)
def refused_messages(workflows: Workflows) -> list[str]:
    sns = workflows.client("sns")
    topic = sns.create_topic(Name=unique("topic"))["TopicArn"]
    sent = ((topic, "x" * 262_144), (topic, "x" * 262_145), (f"{topic}-missing", "x"))
    return [code_of(partial(sns.publish, TopicArn=to, Message=text)) for to, text in sent]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_sns(fact: Fact[Workflows], aws: EmbeddedAws) -> None:
    fact.check(embedded=Workflows(aws))
