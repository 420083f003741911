"""What every verb of dsctl is given: the settings, where results go, and the node when it is first asked for."""

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING

from dsagent.core.errors import UsageError
from dsagent.core.ports import Location
from dsagent.entrypoints.dsctl.render import Output, View, say, write
from dsagent.service.settings import Flags, Settings, load_settings

if TYPE_CHECKING:
    from dsagent.adapters.agent_client import AgentVerbs
    from dsagent.entrypoints.dsctl.progress import ProgressStyle
    from dsagent.service.node import Meter
    from dsagent.service.verbs import Verbs
    from dsagent.wiring import Asking, Wiring

log = logging.getLogger("dsagent")


class Session:
    """One run of dsctl. `agent`, `patience`, `node`: see dsagent.wiring.Asking; `separated`: there was a `--`."""

    def __init__(
        self,
        flags: Flags,
        agent: str | None,
        output: Output,
        style: "ProgressStyle",
        quiet: bool,
        *,
        separated: bool,
        patience: float | None,
        node: str | None = None,
    ) -> None:
        self.flags = flags
        self.agent_address = agent
        self.patience = patience
        self.node = node
        self.output = output
        self.separated = separated
        self._style = style
        self._quiet = quiet

    @cached_property
    def settings(self) -> Settings:
        """The node's settings; raises UsageError."""
        settings = load_settings(self.flags, os.environ)
        for line in settings.lines():
            log.info("setting: %s", line)
        return settings

    @cached_property
    def meter(self) -> "Meter":
        """Where progress goes."""
        from dsagent.entrypoints.dsctl.progress import make_meter  # noqa: PLC0415 - a listing needs none

        return make_meter(self._style, self._quiet)

    @cached_property
    def verbs(self) -> "Verbs":
        """The verbs on the cache; raises UnfitRoot, UsageError."""
        from dsagent.wiring import open_verbs  # noqa: PLC0415 - a help text needs none

        return open_verbs(self.settings, self.meter, self._asking())

    @cached_property
    def agent(self) -> "AgentVerbs":
        """The agent, for verbs that need one; raises AgentUnreachable, UsageError."""
        from dsagent.wiring import open_agent  # noqa: PLC0415 - a help text needs none

        return open_agent(self.settings, self.meter, self._asking())

    @cached_property
    def opener(self) -> "Wiring":
        """Opens sources and stores."""
        from dsagent.wiring import Wiring  # noqa: PLC0415 - a help text needs none

        return Wiring()

    def show(self, view: View) -> None:
        """Writes the result."""
        self.close()
        write(view, self.output)

    def note(self, text: str) -> None:
        """Says something that is good to know on standard error."""
        if not self._quiet:
            say(f"note: {text}")

    def _asking(self) -> "Asking":
        from dsagent.entrypoints.meters import NoMeter  # noqa: PLC0415 - a help text needs none
        from dsagent.wiring import Asking  # noqa: PLC0415 - likewise

        asking = Asking(self.agent_address, looked_at=not isinstance(self.meter, NoMeter), node=self.node)
        return asking if self.patience is None else asking._replace(patience=self.patience)

    def close(self) -> None:
        """Takes progress off the screen."""
        if "meter" in self.__dict__:
            self.meter.stop()


def location(text: str, storage_options: list[str] | None) -> Location:
    """Where a source or store is; raises UsageError for an option that is no `key=value`."""
    if not text:
        raise UsageError("use the location", repr(text), "it is empty", "give a path or a URL")
    options = []
    for option in storage_options or ():
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise UsageError("use", "--storage-option", f"{key!r} has no value", "write --storage-option key=value")
        options.append((key, value))
    return Location(text, tuple(sorted(options)))
