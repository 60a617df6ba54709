"""What the runtime runs in place of `python -m awslambdaric`: the same, and each time it asks for a call is noted.

A line in the file NOTES: the clock that all processes share, and the processor seconds of this process. The first is
the end of the init phase, the second that of the first call. The folder of this file is not on the path (python -P).
"""

import os
import resource
import sys
import time
from typing import Any

from awslambdaric.__main__ import main
from awslambdaric.lambda_runtime_client import LambdaRuntimeClient

_ask = LambdaRuntimeClient.wait_next_invocation


def _note_and_ask(self: Any) -> Any:
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{time.monotonic()} {used.ru_utime + used.ru_stime}\n")
    return _ask(self)


LambdaRuntimeClient.wait_next_invocation = _note_and_ask
main(sys.argv)
