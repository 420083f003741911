"""One resource on a socket of its own, as kubelet sees it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from gpu_topology.api import UNKNOWN_NODE
from gpu_topology.device_plugin import kubelet_pb2 as messages
from gpu_topology.device_plugin.resource import Grant, Offer, Resource
from gpu_topology.device_plugin.rpc import HEALTHY, KUBELET_SOCKET, UNHEALTHY, register, start_server
from gpu_topology.errors import TopologyError

_log = logging.getLogger(__name__)


class PluginSocket:
    """Serves the resource that was last given to `show`."""

    def __init__(self, folder: Path, resource: Resource) -> None:
        self._folder = folder
        self._resource = resource
        self._changed = asyncio.Event()
        self._server: Any = None
        self.is_registered = False

    @property
    def path(self) -> Path:
        """Where it is, in kubelet's folder."""
        return self._folder / f"{self._resource.name.replace('/', '_')}.sock"

    @property
    def healthy(self) -> set[str]:
        """The devices that kubelet may hand out."""
        return {offer.id for offer in self._resource.offers if offer.healthy}

    async def open(self) -> None:
        """Listens, anew if it did before: kubelet removes all sockets when it starts. Raises OSError."""
        await self.close()
        self._server = await start_server(self, self.path)

    async def register(self) -> None:
        """Tells kubelet. Raises OSError."""
        self.is_registered = True  # before it is told: should it start anew meanwhile, this is not true any more
        try:
            await register(self._folder / KUBELET_SOCKET, self.path.name, self._resource.name)
        except OSError:
            self.is_registered = False
            raise
        _log.info("registered %s with kubelet", self._resource.name)

    async def close(self) -> None:
        """Ends all that is being answered."""
        self.is_registered = False
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    def show(self, resource: Resource) -> None:
        """What is served from now on; kubelet is told if its devices differ."""
        differs = resource.offers != self._resource.offers
        self._resource = resource
        if differs:
            self._changed.set()
            self._changed = asyncio.Event()

    async def options(self, _request: messages.Empty, _context: Any) -> messages.PluginOptions:
        return messages.PluginOptions(get_preferred_allocation_available=True)

    async def watch(self, _request: messages.Empty, _context: Any) -> AsyncIterator[messages.ListAndWatchResponse]:
        sent: tuple[Offer, ...] | None = None
        while True:
            offers = self._resource.offers
            if offers == sent:
                await self._changed.wait()
            else:
                yield messages.ListAndWatchResponse(devices=[_device(offer) for offer in offers])
                sent = offers

    async def prefer(
        self, request: messages.PreferredAllocationRequest, _context: Any
    ) -> messages.PreferredAllocationResponse:
        sets = [
            self._resource.prefer(tuple(one.available), tuple(one.must_include), one.size)
            for one in request.container_requests
        ]
        return messages.PreferredAllocationResponse(container_responses=[messages.DeviceIds(ids=ids) for ids in sets])

    async def allocate(self, request: messages.AllocateRequest, context: Any) -> messages.AllocateResponse:
        try:
            grants = [self._resource.grant(tuple(one.ids)) for one in request.container_requests]
        except TopologyError as error:
            _log.error("%s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return messages.AllocateResponse(container_responses=[_answer(grant) for grant in grants])


def _device(offer: Offer) -> messages.Device:
    nodes = [] if offer.numa_node == UNKNOWN_NODE else [messages.NumaNode(id=offer.numa_node)]
    return messages.Device(
        id=offer.id,
        health=HEALTHY if offer.healthy else UNHEALTHY,
        topology=messages.TopologyInfo(nodes=nodes) if nodes else None,
    )


def _answer(grant: Grant) -> messages.ContainerAllocateResponse:
    return messages.ContainerAllocateResponse(
        envs=grant.variables,
        mounts=[messages.Mount(container_path=one.inside, host_path=one.host, read_only=True) for one in grant.mounts],
        devices=[messages.DeviceSpec(container_path=node, host_path=node, permissions="rw") for node in grant.nodes],
        annotations=grant.annotations,
        cdi_devices=[messages.CdiDevice(name=name) for name in grant.cdi],
    )
