"""A progress bar in a notebook, with nothing but what the notebook brings."""

import html
import sys
from typing import Any

from dsagent.core.progress import Progress


def notebook_display() -> Any:
    """IPython's `display` if this process is a notebook's kernel, else None; imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if ipython is None or getattr(shell, "kernel", None) is None:
        return None
    return ipython.display.display


class NotebookBar:
    """Shows a stretch of work in the cell's output, and changes it in place."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def draw(self, progress: Progress, final: bool) -> None:
        """Draws how far the work is."""
        shown = {"text/plain": progress.line(), "text/html": _as_html(progress)}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
        if final:
            self._handle = None


def _as_html(progress: Progress) -> str:
    value = "" if progress.fraction is None else f' value="{progress.fraction:.3f}"'
    return f'<progress max="1"{value}></progress> {html.escape(progress.line())}'
