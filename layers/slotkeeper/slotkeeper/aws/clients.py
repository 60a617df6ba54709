"""Timeouts of the functions' AWS clients. Clients are made once per container, outside the handlers."""

from botocore.config import Config


def client_config(*, read_timeout: float, attempts: int, connect_timeout: float = 1) -> Config:
    """Return a client configuration with timeouts in seconds per attempt, and a number of attempts.

    Between two attempts botocore waits at most 2 ** (attempt - 1) seconds (botocore guide, "Retries", standard mode).
    """
    return Config(
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        retries={"mode": "standard", "total_max_attempts": attempts},
    )
