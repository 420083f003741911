"""The process of the plugin: looks at the node again and again, and keeps kubelet's picture of it right."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gpu_topology.device_plugin.inotify import watched
from gpu_topology.device_plugin.resource import Backend, Resource
from gpu_topology.device_plugin.rpc import KUBELET_SOCKET
from gpu_topology.device_plugin.socket import PluginSocket
from gpu_topology.errors import TopologyError

LOOK_SECONDS = 2.0  # sysfs does not say when it changes, and a device that goes must be known within 5 s
CHECKPOINT = "kubelet_internal_checkpoint"  # what kubelet replaces when it has handed devices out
_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Who wants to know what is served, and what kubelet does; must not take long."""

    def tell(self, resources: Sequence[Resource]) -> None: ...
    def allocated(self) -> None: ...
    def restarted(self) -> None: ...


class Process:
    """All backends and the sockets of their resources; to be used in one event loop."""

    def __init__(self, kubelet_folder: Path, backends: Sequence[Backend], observer: Observer | None = None) -> None:
        self._folder = kubelet_folder
        self._backends = backends
        self._observer = observer
        self._sockets: dict[str, PluginSocket] = {}
        self._wake = asyncio.Event()
        self._is_over = False
        self._said: dict[str, str] = {}  # the last trouble with each subject, so that each is logged once

    async def run(self) -> None:
        """Serves until `stop`. Raises TopologyError if kubelet's folder is not there."""
        loop = asyncio.get_running_loop()
        with watched(self._folder) as (descriptor, new_names):
            loop.add_reader(descriptor, lambda: self._on_new(new_names()))
            try:
                while not self._is_over:
                    self._wake.clear()
                    await self._step()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
            finally:
                loop.remove_reader(descriptor)
                for socket in self._sockets.values():
                    await socket.close()

    def stop(self) -> None:
        """Lets `run` end."""
        self._is_over = True
        self._wake.set()

    def wake(self) -> None:
        """Lets it look now."""
        self._wake.set()

    def _on_new(self, names: Sequence[str]) -> None:
        if KUBELET_SOCKET in names:  # kubelet has started, and has removed our sockets before
            for socket in self._sockets.values():
                socket.is_registered = False
            self._wake.set()
            if self._observer:
                self._observer.restarted()
        if CHECKPOINT in names and self._observer:
            self._observer.allocated()

    async def _step(self) -> None:
        shown: list[Resource] = []
        is_whole = True
        for backend in self._backends:
            try:
                resources = await asyncio.to_thread(backend.look)
            except TopologyError as error:
                self._trouble(type(backend).__name__, str(error))
                is_whole = False
                continue
            for resource in resources:
                self._show(resource)
            shown += resources
        for name, socket in self._sockets.items():
            if not socket.is_registered and (self._folder / KUBELET_SOCKET).exists():
                await self._register(name, socket)
        if self._observer and is_whole:
            self._observer.tell(shown)

    def _show(self, resource: Resource) -> None:
        socket = self._sockets.get(resource.name)
        if socket is None:
            self._sockets[resource.name] = PluginSocket(self._folder, resource)
            return
        before, now = socket.healthy, {offer.id for offer in resource.offers if offer.healthy}
        for one in sorted(before ^ now):
            _log.warning("%s of %s is %s", one, resource.name, "healthy" if one in now else "unhealthy")
        socket.show(resource)

    async def _register(self, name: str, socket: PluginSocket) -> None:
        try:
            await socket.open()
            await socket.register()
        except OSError as error:
            self._trouble(name, f"cannot register {name} with kubelet: {error}; this is tried again")
        else:
            self._said.pop(name, None)

    def _trouble(self, subject: str, text: str) -> None:
        if self._said.get(subject) != text:
            _log.error("%s", text)
        self._said[subject] = text


async def serve_until_signal(process: Process) -> None:
    """Runs it until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stop)
    await process.run()
