"""A Glue job that the test ends: it runs until its gate, a file, states how.

Without boto3, whose import costs more than all that a test does with a run.
"""

import argparse
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--gates", type=Path)
parser.add_argument("--gate")
arguments, _ = parser.parse_known_args()

gate = arguments.gates / arguments.gate
while True:
    if (gate / "succeed").exists():
        sys.exit(0)
    if (gate / "fail").exists():
        sys.exit("the test said: fail")
    time.sleep(0.1)
