"""A picture of what happens at the same time and what after one another, as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tools.bench.draw import BAR, GAP, LABEL, STYLE, WIDTH

_KINDS = {"data": "ours", "image": "other"}


@dataclass(frozen=True)
class Span:
    """Something of KINDS that went on for a while, in seconds after the course's begin."""

    kind: str
    begin: float
    end: float


@dataclass(frozen=True)
class Course:
    """What belongs together; `started` is when all of it had led to what was wanted."""

    title: str
    spans: Sequence[Span]
    started: float


def timeline(title: str, note: str, courses: Sequence[Course]) -> str:
    """The SVG document: a row for each span on one scale, and a line where the course has come to its end."""
    scale = (WIDTH - LABEL - 90) / max(course.started for course in courses)
    parts, y = [], 60
    for course in courses:
        parts.append(_text(LABEL - 10, y + 14, course.title, "strong", "end"))
        top = y
        for span in course.spans:
            left, length = LABEL + span.begin * scale, max(2.0, (span.end - span.begin) * scale)
            shape = f'x="{left:.1f}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"'
            parts += [f'<rect class="{_KINDS[span.kind]}" {shape}/>', _text(left + 6, y + 14, span.kind, "on")]
            y += BAR + 3
        end = LABEL + course.started * scale
        parts += [
            f'<path class="start" d="M{end:.1f} {top - 3}V{y}"/>',
            _text(end + 6, top + 14, f"started after {course.started:.1f} s", "strong"),
        ]
        y += GAP + 6
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 60} {y}" width="{WIDTH + 60}" role="img">'
    more = ".start { stroke: #3d444d; stroke-width: 2; } .on { fill: #fff; font-size: 12px; }"
    dark = "@media (prefers-color-scheme: dark) { .start { stroke: #d5dae0; } .on { fill: #0d1117; } }"
    captions = [_text(8, 22, title, "title"), _text(8, 42, note, "note")]
    style = f"<style>{STYLE}{more}{dark}</style>"
    return "\n".join([head, f"<title>{escape(title)}</title>", style, *captions, *parts, "</svg>", ""])


def _text(x: float, y: int, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
