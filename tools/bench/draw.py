"""The picture of the README: bars of seconds, written as SVG that reads on light and dark pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABEL, BAR, GAP = 860, 250, 18, 7
STYLE = """
text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #3d444d; }
.title { font-weight: 600; font-size: 14px; }
.note { fill: #6e7781; font-size: 12px; }
.ours { fill: #1a7f5a; }
.other { fill: #9aa4af; }
.strong { font-weight: 600; }
@media (prefers-color-scheme: dark) {
  text { fill: #d5dae0; } .note { fill: #9aa4af; } .ours { fill: #3fb98a; } .other { fill: #59636e; }
}
"""


@dataclass(frozen=True)
class Bar:
    """One bar; `ours` is highlighted."""

    label: str
    value: float
    ours: bool


@dataclass(frozen=True)
class Panel:
    """Bars of one unit on one scale."""

    title: str
    note: str
    unit: str
    bars: Sequence[Bar]

    @property
    def height(self) -> int:
        """Pixels that the panel takes."""
        return 52 + len(self.bars) * (BAR + GAP) + 14


def picture(panels: Sequence[Panel]) -> str:
    """The SVG document."""
    height = sum(panel.height for panel in panels) + 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">'
    parts = [
        head,
        f"<title>{escape('; '.join(panel.title for panel in panels))}</title>",
        f"<style>{STYLE}</style>",
    ]
    top = 6
    for panel in panels:
        parts += _panel(panel, top)
        top += panel.height
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, top: int) -> list[str]:
    scale = (WIDTH - LABEL - 90) / max(bar.value for bar in panel.bars)
    parts = [
        f'<text class="title" x="8" y="{top + 20}">{escape(panel.title)}</text>',
        f'<text class="note" x="8" y="{top + 38}">{escape(panel.note)}</text>',
    ]
    for number, bar in enumerate(panel.bars):
        y = top + 52 + number * (BAR + GAP)
        length = max(2.0, bar.value * scale)
        kind, weight = ("ours", "strong") if bar.ours else ("other", "")
        text, before, end = y + 14, LABEL - 10, LABEL + length + 8
        parts += [
            f'<text class="{weight}" x="{before}" y="{text}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>',
            f'<text class="{weight}" x="{end:.1f}" y="{text}">{_number(bar.value)} {panel.unit}</text>',
        ]
    return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
