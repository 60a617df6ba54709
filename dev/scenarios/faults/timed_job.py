"""The soak's Glue job: sleeps for --seconds, and ends as --ending states. Uses the standard library alone."""

import argparse
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float)
parser.add_argument("--ending", choices=["succeed", "fail", "hang"])
arguments, _ = parser.parse_known_args()

time.sleep(3600 if arguments.ending == "hang" else arguments.seconds)
sys.exit("the request's --ending is fail" if arguments.ending == "fail" else 0)
