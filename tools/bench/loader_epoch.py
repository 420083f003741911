"""One shuffled epoch of a loader with worker processes; run by itself, prints what it took as JSON.

    python loader_epoch.py file|s3 LOCATION WORKERS

LOCATION is a directory, or BUCKET/PREFIX. Needs Pillow, and botocore for s3. The workers read, decode,
scale, and send batches, as a training job's would.
"""

import importlib
import io
import json
import multiprocessing
import os
import random
import sys
import time
from typing import Any

BATCH, SIDE = 64, 96


class Files:
    """Images below a directory."""

    def list(self, location: str) -> list[str]:
        """Paths of all images."""
        return [os.path.join(at, name) for at, _, names in os.walk(location) for name in names]

    def read(self, path: str) -> bytes:
        """Bytes of one."""
        with open(path, "rb") as file:
            return file.read()


class Objects:
    """Images below a prefix, through botocore: 14 ms an image where s3fs took 26."""

    def __init__(self) -> None:
        """Make a client; every process makes its own."""
        self._client = importlib.import_module("botocore.session").get_session().create_client("s3")

    def list(self, location: str) -> list[str]:
        """Bucket/key of all images."""
        bucket, prefix = location.split("/", 1)
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        return [f"{bucket}/{item['Key']}" for page in pages for item in page["Contents"]]

    def read(self, path: str) -> bytes:
        """Bytes of one."""
        bucket, key = path.split("/", 1)
        content: bytes = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content


PLACES: dict[str, type[Files] | type[Objects]] = {"file": Files, "s3": Objects}


def work(kind: str, batches: Any, results: Any) -> None:
    """Decode batches until there are none."""
    pictures = importlib.import_module("PIL.Image")  # Of the environment that runs this, not of the bench's.
    place = PLACES[kind]()
    while (batch := batches.get()) is not None:
        images = (pictures.open(io.BytesIO(place.read(path))) for path in batch)
        results.put(b"".join(image.convert("RGB").resize((SIDE, SIDE)).tobytes() for image in images))


def epoch(kind: str, location: str, workers: int) -> dict[str, float]:
    """Images, seconds in all, and seconds until the first batch, all from the start of the listing."""
    start = multiprocessing.get_context("fork")
    batches, results = start.Queue(), start.Queue()
    begun = time.perf_counter()
    images = sorted(path for path in PLACES[kind]().list(location) if path.endswith(".png"))
    random.Random(1).shuffle(images)
    crew = [start.Process(target=work, args=(kind, batches, results)) for _ in range(workers)]
    for process in crew:
        process.start()
    parts = [images[at : at + BATCH] for at in range(0, len(images), BATCH)]
    for part in [*parts, *[None] * workers]:
        batches.put(part)
    first = 0.0
    for _ in parts:
        results.get()
        first = first or time.perf_counter() - begun
    total = time.perf_counter() - begun
    for process in crew:
        process.join()
    return {"images": len(images), "seconds": total, "first_batch": first}


if __name__ == "__main__":
    print(json.dumps(epoch(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
