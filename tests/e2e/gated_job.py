"""A Glue job that the test opens and closes: it runs until its gate, an object in S3, says how it ends."""

import argparse
import sys
import time

import boto3

parser = argparse.ArgumentParser()
parser.add_argument("--bucket")
parser.add_argument("--gate")
arguments, _ = parser.parse_known_args()

s3 = boto3.client("s3")
while True:
    for ending in ("succeed", "fail"):
        listed = s3.list_objects_v2(Bucket=arguments.bucket, Prefix=f"gates/{arguments.gate}/{ending}")
        if listed["KeyCount"]:
            sys.exit(0 if ending == "succeed" else "the test said: fail")
    time.sleep(0.1)
