"""What the senders say, and how it is signed: written from the contract alone, as any chat service would."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass

QUESTIONS = (
    "Where is my order?",
    "Can I change the delivery address?",
    "Which of your shops is open on Sunday?",
    "How do I return a pair of shoes?",
    "Do you repair what you sell?",
    "What does express delivery cost?",
    "Is the blue one still in stock?",
)


@dataclass(frozen=True)
class Message:
    """One message. No two have the same text, so the API's log tells them apart."""

    number: int  # from 1

    @property
    def message_id(self) -> str:
        return f"m{self.number:05d}"

    @property
    def text(self) -> str:
        return f"{QUESTIONS[self.number % len(QUESTIONS)]} (customer {self.number})"

    def body(self, sender: int) -> bytes:
        """What is sent: a sender's messages are one conversation."""
        content = {"message_id": self.message_id, "text": self.text, "conversation": f"sender-{sender}"}
        return json.dumps(content).encode()


def signed(key: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a request with this body, sent at `timestamp` (epoch seconds)."""
    digest = hmac.new(key.encode(), f"v1:{timestamp}:".encode() + body, "sha256").hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Slotkeeper-Timestamp": str(timestamp),
        "X-Slotkeeper-Signature": f"v1={digest}",
    }
