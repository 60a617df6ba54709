"""The soak's Glue job: works for as long as it is told, and ends as it is told. Nothing but the standard library."""

import argparse
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float)
parser.add_argument("--ending", choices=["succeed", "fail", "hang"])
arguments, _ = parser.parse_known_args()

time.sleep(3600 if arguments.ending == "hang" else arguments.seconds)
sys.exit("the request said: fail" if arguments.ending == "fail" else 0)
