"""A soak for some seconds: SOAK_SEED repeats one; for longer: python -m tests.soak --minutes 60."""

import os
import random
from pathlib import Path

import pytest

from tests.soak.soak import Soak

SECONDS = 10.0


@pytest.mark.needs("root", "mount", "ext4", "loop")
def test_whatever_happens_nothing_in_use_is_missing_and_every_byte_is_accounted_for(scratch: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.randrange(1 << 30))
    print(f"SOAK_SEED={seed}")
    soak = Soak(scratch, seed, float(os.environ.get("SOAK_SECONDS") or SECONDS))
    soak.run()
    print(dict(soak.counts))
    assert soak.counts["put"] > 0
    assert soak.counts["quiet points"] > 0
