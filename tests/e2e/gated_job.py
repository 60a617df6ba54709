"""A Glue job that runs until the test writes a file into its gate, a folder: `succeed` or `fail`.

It does not import boto3, which would take longer than the rest of a run.
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
        sys.exit("failed by the test")
    time.sleep(0.1)
