"""python -m tests.soak --minutes 10: a long soak. What the test of the same name does for some seconds."""

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.soak.soak import Soak
from tests.support import trees

parser = argparse.ArgumentParser("tests.soak", description=__doc__)
parser.add_argument("--minutes", type=float, default=10.0)
parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
parser.add_argument("--place", help="a folder to work in [default: one in memory]", default="/dev/shm")
parser.add_argument("--keep", action="store_true", help="leave the folder with the agent's log")
arguments = parser.parse_args()
print(f"seed {arguments.seed}", flush=True)
place = Path(tempfile.mkdtemp(prefix="soak-", dir=arguments.place))
place.chmod(0o755)
soak = Soak(place, arguments.seed, arguments.minutes * 60)
started = time.monotonic()
try:
    soak.run()
finally:
    took = time.monotonic() - started
    print(f"{took:.0f} s, {sum(soak.counts.values()) / took:.1f} steps a second, {dict(soak.counts)}", flush=True)
    if arguments.keep:
        print(place)
    else:
        trees.remove(place)
