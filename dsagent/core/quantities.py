"""Sizes and durations as people write and read them."""

import re

from dsagent.core.errors import UsageError

_PREFIXES = "kmgtpe"
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*(?:([kmgtpe])(i?))?b?", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"(\d+)(?:\.(\d+))?\s*([smhd]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LARGEST_SIZE = 1 << 63
_LONGEST = 36_500 * 86_400  # a hundred years: still a valid date when added to now
_DIGITS = 30  # more would be no quantity, and slow to convert


def parse_size(text: str) -> int:
    """Bytes from `1048576`, `500G`, `500GB` (10^9 each), `500Gi`, `500GiB` (2^30 each) or `1.5T`.

    A part of a byte is dropped. Raises UsageError.
    """
    found = _SIZE.fullmatch(text.strip())
    if found and len(text) <= _DIGITS:
        whole, part, prefix, binary = found.groups()
        size = _scaled(whole, part, _factor(prefix, bool(binary)))
        if size < _LARGEST_SIZE:
            return size
    raise UsageError("use the size", repr(text), "it is no size", "write for example 1048576, 500G, 500GB or 500GiB")


def _factor(prefix: str | None, binary: bool) -> int:
    power = _PREFIXES.index(prefix.lower()) + 1 if prefix else 0
    return int((1024 if binary else 1000) ** power)


def _scaled(whole: str, part: str | None, factor: int) -> int:
    """`whole.part` times `factor`, exactly, rounded down."""
    part = part or ""
    return int(int(whole + part) * factor // 10 ** len(part))


def parse_duration(text: str) -> float:
    """Seconds from `90`, `90s`, `15m`, `2h`, `7d` or `1.5h`. Raises UsageError."""
    found = _DURATION.fullmatch(text.strip())
    if found and len(text) <= _DIGITS:
        whole, part, unit = found.groups()
        seconds = float(f"{whole}.{part or 0}") * _SECONDS[unit]
        if seconds <= _LONGEST:
            return seconds
    raise UsageError("use the duration", repr(text), "it is no duration", "write for example 90s, 15m, 2h or 7d")


def human_size(size: float) -> str:
    """Bytes for people, in powers of 1000: `617 MB`, `1.3 TB`."""
    value, unit = abs(float(size)), "B"
    for prefix in _PREFIXES:
        if value < 999.5:
            break
        value, unit = value / 1000, f"{prefix if prefix == 'k' else prefix.upper()}B"
    sign = "-" if size < 0 else ""
    return f"{sign}{value:.1f} {unit}" if value < 9.95 and unit != "B" else f"{sign}{value:.0f} {unit}"


def human_duration(seconds: float) -> str:
    """Seconds for people, in at most two units: `0.4 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `7 d`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    left = round(seconds)
    for large, small, factor, size in (("d", "h", 3600, 86400), ("h", "min", 60, 3600), ("min", "s", 1, 60)):
        if left >= size:
            rest = left % size // factor
            return f"{left // size} {large} {rest} {small}" if rest else f"{left // size} {large}"
    return f"{left} s"


def human_count(count: int) -> str:
    """A number with its thousands apart: `1,281,167`."""
    return f"{count:,}"
