"""Sizes and durations as dsagent.core.quantities reads and writes them; that module is not in the zipapp."""

import re

_PREFIXES = "kMGTPE"
_DURATION = re.compile(r"(\d{1,12})(\.\d{1,9})?\s*([smhd]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 36_500 * 86_400


def parse_duration(text: str) -> float | None:
    """Seconds from `90`, `90s`, `15m`, `2h`, `7d` or `1.5h`; None if it is no duration."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    seconds = float(found[1] + (found[2] or "")) * _SECONDS[found[3]]
    return seconds if seconds <= _LONGEST else None


def human_size(size: float) -> str:
    """Bytes for people, in powers of 1000: `617 MB`, `1.3 TB`."""
    value, unit = float(size), "B"
    for prefix in _PREFIXES:
        if value < 999.5:
            break
        value, unit = value / 1000, f"{prefix}B"
    return f"{value:.1f} {unit}" if value < 9.95 and unit != "B" else f"{value:.0f} {unit}"


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
