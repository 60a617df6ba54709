"""How patient the functions' AWS clients are. Clients are made once a container, outside the handlers."""

from botocore.config import Config

# For the starter: two calls, the first of them answered only at its third attempt and the second never, take 29 s with
# the waits between the attempts, and the function has 30. A call that hung for longer would take the whole invocation
# with it, and what became of the message could not even be logged.
QUICK = Config(connect_timeout=1, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 3})

# For the janitor's lists, whose pages take longer than a call of the starter's. A service that does not answer costs it
# 24 s, which leaves a run of 50 s the time for everything else.
LISTING = Config(connect_timeout=1, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})

# For deployments, where nobody waits.
PATIENT = Config(connect_timeout=2, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 5})

# For the token item: somebody waits for an answer, and looks again by itself when a call fails.
PROMPT = Config(connect_timeout=1, read_timeout=1, retries={"mode": "standard", "total_max_attempts": 2})

# For what else the chatbot calls while somebody waits, since it does not look again by itself; and for the retry
# policy, without which a worker gets along.
BRISK = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 2})
