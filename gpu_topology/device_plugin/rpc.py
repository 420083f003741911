"""Kubelet's services over gRPC: the names of their methods, with the messages that each takes and gives.

Registration and DevicePlugin are of the device plugin API v1beta1, PodResourcesLister of podresources v1.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import grpc

from gpu_topology.device_plugin import kubelet_pb2 as messages

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

REGISTER = "/v1beta1.Registration/Register"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
PODS = "/v1.PodResourcesLister/List"
PLUGIN = "v1beta1.DevicePlugin"

_REGISTER_SECONDS = 5.0  # for kubelet to come up and answer
_ANSWER_SECONDS = 1.0
_REPORT_SECONDS = 5.0  # where no device waits for the answer


class Plugin(Protocol):
    """DevicePlugin: what kubelet asks of a resource's socket."""

    async def options(self, request: messages.Empty, context: Any) -> messages.PluginOptions: ...
    def watch(self, request: messages.Empty, context: Any) -> AsyncIterator[messages.ListAndWatchResponse]: ...
    async def prefer(
        self, request: messages.PreferredAllocationRequest, context: Any
    ) -> messages.PreferredAllocationResponse: ...
    async def allocate(self, request: messages.AllocateRequest, context: Any) -> messages.AllocateResponse: ...


async def start_server(plugin: Plugin, socket: Path) -> Any:
    """A grpc.aio.Server that answers on the socket, in place of what was there. Raises OSError."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(plugin),))
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise OSError(str(error)) from error
    await server.start()
    return server


def _handlers(plugin: Plugin) -> Any:
    def unary(method: Any, request: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(method, request.FromString, _bytes)

    methods = {
        "GetDevicePluginOptions": unary(plugin.options, messages.Empty),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(plugin.watch, messages.Empty.FromString, _bytes),
        "GetPreferredAllocation": unary(plugin.prefer, messages.PreferredAllocationRequest),
        "Allocate": unary(plugin.allocate, messages.AllocateRequest),
    }
    return grpc.method_handlers_generic_handler(PLUGIN, methods)


async def register(kubelet: Path, endpoint: str, resource: str) -> None:
    """Tells the kubelet that listens there of a resource, and its socket's name. Raises OSError."""
    options = messages.PluginOptions(get_preferred_allocation_available=True)
    request = messages.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource, options=options)
    async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
        tell = channel.unary_unary(REGISTER, _bytes, messages.Empty.FromString)
        try:
            # A socket is there a moment before somebody listens.
            await tell(request, timeout=_REGISTER_SECONDS, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise OSError(_text(error)) from error


def allocatable(pod_resources: Path) -> messages.AllocatableResources:
    """The healthy devices of all plugins that kubelet knows. Raises OSError."""
    with grpc.insecure_channel(f"unix:{pod_resources}") as channel:
        ask = channel.unary_unary(ALLOCATABLE, _bytes, messages.AllocatableResources.FromString)
        try:
            answer: messages.AllocatableResources = ask(messages.Empty(), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise OSError(_text(error)) from error
        return answer


def handed_out(pod_resources: Path) -> tuple[messages.AllocatableResources, messages.ListPodResources]:
    """What kubelet can hand out, and what the containers of its pods have. Raises OSError."""
    with grpc.insecure_channel(f"unix:{pod_resources}") as channel:
        ask_what_can = channel.unary_unary(ALLOCATABLE, _bytes, messages.AllocatableResources.FromString)
        ask_what_has = channel.unary_unary(PODS, _bytes, messages.ListPodResources.FromString)
        try:
            can = ask_what_can(messages.Empty(), timeout=_REPORT_SECONDS)
            return can, ask_what_has(messages.Empty(), timeout=_REPORT_SECONDS)
        except grpc.RpcError as error:
            raise OSError(_text(error)) from error


def _text(error: Any) -> str:
    return f"{error.details()} ({error.code().name})"


def _bytes(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written
