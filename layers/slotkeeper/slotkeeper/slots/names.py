"""The one name of a request's run: execution name, holder key and deduplication id."""

from hashlib import sha256


def execution_name(process: str, request_id: str, attempt: int) -> str:
    """The execution name of a request's attempt: `<process>-<32 hex digits>`, at most 80 characters.

    It depends on the request alone, so a redelivered message can neither take a second slot nor start a second
    execution. The line feed keeps ("a1", 1) and ("a", 11) apart; the workflow's GiveBack state computes the same.

    Source of the 80: Step Functions API Reference, StartExecution, `name`.
    """
    digest = sha256(f"{request_id}\n{attempt}".encode()).hexdigest()
    return f"{process}-{digest[:32]}"
