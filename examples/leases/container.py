"""A container that runs a licensed program for each file: python container.py PROGRAM FILE..."""

import subprocess
import sys

from slotkeeper import slots


def main(program: str, *files: str) -> None:
    with slots.lease("licence", seconds=60, wait=3600) as lease:
        for file in files:
            lease.extend(60)  # SlotLost ends the work: another caller may have the slot
            subprocess.run([program, file], check=True, timeout=lease.remaining())


if __name__ == "__main__":
    main(*sys.argv[1:])
