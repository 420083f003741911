"""What the parts of a running plugin share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler_plugin.decisions import Decisions
from scheduler_plugin.metrics import Metrics
from scheduler_plugin.protocol import Reader
from scheduler_plugin.settings import Settings
from scheduler_plugin.terms import Term, terms_of
from scheduler_plugin.view import View


def _nothing() -> list[str]:
    return []


@dataclass
class State:
    """The view, the settings and what was decided. `unsynced` names the kinds that have not been listed yet."""

    view: View
    settings: Settings = field(default_factory=Settings)
    unsynced: Callable[[], list[str]] = _nothing
    reader: Reader = field(default_factory=Reader)
    decisions: Decisions = field(default_factory=Decisions)
    metrics: Metrics = field(default_factory=Metrics)
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        self.use(self.settings)

    def use(self, settings: Settings) -> None:
        """From now on with these settings."""
        self.settings = settings
        self.terms = terms_of(settings)
