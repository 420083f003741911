"""Sizes and durations as people write them."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsagent.core.errors import UsageError
from dsagent.core.quantities import human_count, human_duration, human_size, parse_duration, parse_size

UNITS = {
    "": 1,
    "B": 1,
    "k": 10**3,
    "K": 10**3,
    "KiB": 2**10,
    "M": 10**6,
    "MB": 10**6,
    "Mi": 2**20,
    "G": 10**9,
    "GB": 10**9,
    "Gi": 2**30,
    "GiB": 2**30,
    "T": 10**12,
    "TiB": 2**40,
}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1048576),
        ("500G", 500 * 10**9),
        ("500GB", 500 * 10**9),
        ("500Gi", 500 * 2**30),
        ("500GiB", 500 * 2**30),
        ("1.5T", 1_500_000_000_000),
        ("0.0001k", 0),
        (" 7 MiB ", 7 * 2**20),
        ("0", 0),
        ("8388607TiB", 8388607 * 2**40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_size_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == number * UNITS[unit]


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(UNITS)))
def test_decimals_are_exact(whole: int, thousandths: int, unit: str) -> None:
    assert parse_size(f"{whole}.{thousandths:03}{unit}") == (whole * 1000 + thousandths) * UNITS[unit] // 1000


@pytest.mark.parametrize(
    "text",
    ["", "G", "-1", "+1", "1.G", ".5G", "1e9", "1_000", "1 000", "5X", "5GG", "5iB", "٣", "9EiB", "9" * 5000],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="500GiB"):
        parse_size(text)


@given(st.text(max_size=40))
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    for parse in (parse_size, parse_duration):
        with contextlib.suppress(UsageError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("90", 90), ("15m", 900), ("2h", 7200), ("7d", 604800), ("1.5h", 5400), ("0.25", 0.25)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 36_500), st.sampled_from("smhd"))
def test_a_duration_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]


@pytest.mark.parametrize("text", ["", "h", "-2h", "2w", "2hours", "1h30m", "inf", "nan", "36501d", "9" * 400])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="7d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (617_000_000, "617 MB"),
        (1_300_000_000_000, "1.3 TB"),
        (-2_500_000, "-2.5 MB"),
    ],
)
def test_human_sizes(size: int, text: str) -> None:
    assert human_size(size) == text


@given(st.integers(0, 1 << 62))
def test_a_human_size_is_short_and_within_five_percent(size: int) -> None:
    text = human_size(size)
    assert re.fullmatch(r"\d{1,3}(\.\d)? [kMGTPE]?B", text)
    assert abs(parse_size(text) - size) <= 0.05 * size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.95, "10 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (604800, "7 d"),
        (90000, "1 d 1 h"),
    ],
)
def test_human_durations(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_human_counts() -> None:
    assert human_count(1281167) == "1,281,167"
