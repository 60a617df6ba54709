"""A Glue job that runs until the test writes a file into its gate, a folder: `succeed` or `fail`.

Its imports take a fraction of those of boto3 or argparse.
"""

import os
import sys
import time

gate = os.path.join(*(sys.argv[sys.argv.index(name) + 1] for name in ("--gates", "--gate")))
while True:
    if os.path.exists(f"{gate}/succeed"):
        sys.exit(0)
    if os.path.exists(f"{gate}/fail"):
        sys.exit("failed by the test")
    time.sleep(0.1)
