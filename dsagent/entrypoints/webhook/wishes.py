"""What a pod's annotations ask for."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dsagent.api.v1alpha1.dataset import DURATION_PATTERN
from dsagent.api.v1alpha1.references import BadReference, Reference, parse_references
from dsagent.contract import (
    ANNOTATION_DATASETS,
    ANNOTATION_MODE,
    ANNOTATION_ON_FAILURE,
    ANNOTATION_TIMEOUT,
    API_GROUP,
)

_KNOWN = (ANNOTATION_DATASETS, ANNOTATION_MODE, ANNOTATION_ON_FAILURE, ANNOTATION_TIMEOUT)
_NEAR = 0.85  # all of them begin alike
_DURATION = re.compile(DURATION_PATTERN.removesuffix("$") + r"\Z")


class Refusal(Exception):
    """Why a pod cannot be admitted, and what to do; for its author."""


@dataclass(frozen=True)
class Wishes:
    """What a pod's annotations ask for. `timeout` is empty where the pod leaves it to the cluster."""

    references: tuple[Reference, ...]
    mode: Literal["cache", "local"]
    on_failure: Literal["fail", "source"]
    timeout: str

    @property
    def reads_source(self) -> bool:
        """Whether the pod has to have the sources mounted."""
        return self.mode == "local" or self.on_failure == "source"


def parse_wishes(annotations: Mapping[str, str]) -> Wishes | None:
    """What the annotations ask for, or None if none of them is ours; raises Refusal."""
    for key in annotations:
        near = difflib.get_close_matches(key, _KNOWN, n=1, cutoff=_NEAR) if key.startswith(f"{API_GROUP}/") else []
        if near and key not in _KNOWN:
            raise Refusal(f"there is no annotation {key}; did you mean {near[0]}?")
    ours = {key: annotations[key].strip() for key in _KNOWN if key in annotations}
    if not ours:
        return None
    if ANNOTATION_DATASETS not in ours:
        raise Refusal(
            f"{', '.join(sorted(ours))} without {ANNOTATION_DATASETS}; name the datasets, for example imagenet, coco"
        )
    if not _DURATION.match(ours.get(ANNOTATION_TIMEOUT, "1h")):
        raise Refusal(f"{ANNOTATION_TIMEOUT} is {ours[ANNOTATION_TIMEOUT]!r}; write for example 90s, 15m, 2h or 7d")
    try:
        references = parse_references(ours[ANNOTATION_DATASETS])
    except BadReference as error:
        raise Refusal(str(error)) from error
    mode = _one_of(ours, ANNOTATION_MODE, "cache", "local")
    on_failure = _one_of(ours, ANNOTATION_ON_FAILURE, "fail", "source")
    return Wishes(
        references,
        "local" if mode == "local" else "cache",
        "source" if on_failure == "source" else "fail",
        ours.get(ANNOTATION_TIMEOUT, ""),
    )


def _one_of(ours: Mapping[str, str], key: str, default: str, other: str) -> str:
    value = ours.get(key, default)
    if value not in (default, other):
        raise Refusal(f"{key} is {value!r}; write {default} or {other}")
    return value
