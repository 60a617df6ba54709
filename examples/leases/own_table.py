"""Leases in a table of one's own, whose key is process_name (text), without a stack: python own_table.py TABLE."""

import sys

import boto3

from slotkeeper import slots


def main(table_name: str) -> None:
    dynamodb = boto3.client("dynamodb")
    slots.Processes(dynamodb, table_name).create("licence", slot_limit=2)  # an existing one is unchanged
    with slots.lease("licence", seconds=60, wait=20, table=table_name) as lease:
        print(f"working for at most {lease.remaining():.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
