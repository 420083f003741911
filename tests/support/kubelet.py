"""Kubelet's side of the device plugin API: a gRPC server that plugins register with, and a client of their sockets.

Methods and messages are found through grpc's own names and the protocol's field numbers, so that the plugin's handlers
are spoken to as the real kubelet does.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import grpc

from gpu_topology.device_plugin import kubelet_pb2 as messages
from tests.support.command import HANG_SECONDS

_PLUGIN = "/v1beta1.DevicePlugin"


class Kubelet:
    """A kubelet's folder of plugins, with the server of its socket; it can end and start again."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "device-plugins"
        self.plugins.mkdir(parents=True)
        self.registered: Queue[Any] = Queue()
        self.cpus: list[int] = []  # that containers may have for themselves
        self.pods = messages.ListPodResources()  # what they have
        self._servers: list[Any] = []

    def start(self) -> None:
        """As kubelet does: removes all sockets of plugins first."""
        for socket in self.plugins.glob("*.sock"):
            socket.unlink()
        register = {"Register": (messages.RegisterRequest, self._on)}
        self._serve(self.plugins / "kubelet.sock", "v1beta1.Registration", register)

    def start_pod_resources(self, known: Callable[[], dict[str, list[str]]]) -> None:
        """Serves PodResources: the ids of each resource as what can be handed out, and `pods` as what has been."""

        def can(_request: Any, _context: Any) -> Any:
            devices = [messages.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in known().items()]
            return messages.AllocatableResources(devices=devices, cpu_ids=self.cpus)

        def has(_request: Any, _context: Any) -> Any:
            return self.pods

        path = self.plugins.parent / "pod-resources" / "kubelet.sock"
        path.parent.mkdir()
        answers = {"GetAllocatableResources": (messages.Empty, can), "List": (messages.Empty, has)}
        self._serve(path, "v1.PodResourcesLister", answers)

    def stop(self) -> None:
        """Ends all servers."""
        for server in self._servers:
            server.stop(None).wait()
        self._servers.clear()

    def next_registered(self) -> Any:
        """The next request to register, waited for."""
        return self.registered.get(timeout=HANG_SECONDS)

    def _on(self, request: Any, _context: Any) -> Any:
        self.registered.put(request)
        return messages.Empty()

    def _serve(self, path: Path, service: str, answers: Mapping[str, tuple[Any, Callable[[Any, Any], Any]]]) -> None:
        server = grpc.server(ThreadPoolExecutor(2))
        methods = {
            method: grpc.unary_unary_rpc_method_handler(
                answer, request.FromString, lambda made: made.SerializeToString()
            )
            for method, (request, answer) in answers.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        self._servers.append(server)


class Endpoint:
    """A plugin's socket, as kubelet uses it."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}", [("grpc.use_local_subchannel_pool", 1)])

    def options(self) -> Any:
        return self._ask("GetDevicePluginOptions", messages.Empty(), messages.PluginOptions)

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        one = messages.ContainerPreferredAllocationRequest(available=available, must_include=required, size=size)
        request = messages.PreferredAllocationRequest(container_requests=[one])
        answer = self._ask("GetPreferredAllocation", request, messages.PreferredAllocationResponse)
        return list(answer.container_responses[0].ids)

    def allocate(self, *containers: Sequence[str]) -> list[Any]:
        request = messages.AllocateRequest(container_requests=[messages.DeviceIds(ids=ids) for ids in containers])
        return list(self._ask("Allocate", request, messages.AllocateResponse).container_responses)

    @contextmanager
    def watching(self) -> Iterator["Watched"]:
        """ListAndWatch, as long as the block lasts."""
        watched = Watched(self._channel)
        try:
            yield watched
        finally:
            watched.end()

    def close(self) -> None:
        self._channel.close()

    def _ask(self, method: str, request: Any, answer: Any) -> Any:
        ask = self._channel.unary_unary(f"{_PLUGIN}/{method}", type(request).SerializeToString, answer.FromString)
        return ask(request, timeout=HANG_SECONDS, wait_for_ready=True)


class Watched:
    """What ListAndWatch has sent, each as {id: (healthy, NUMA nodes)}."""

    def __init__(self, channel: Any) -> None:
        watch = channel.unary_stream(
            f"{_PLUGIN}/ListAndWatch", messages.Empty.SerializeToString, messages.ListAndWatchResponse.FromString
        )
        self._call = watch(messages.Empty(), wait_for_ready=True)
        self.sent: Queue[dict[str, tuple[bool, list[int]]]] = Queue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def next(self) -> dict[str, tuple[bool, list[int]]]:
        """The next list, waited for."""
        return self.sent.get(timeout=HANG_SECONDS)

    def next_healthy(self) -> set[str]:
        """Those that are healthy in the next list."""
        return {device for device, (healthy, _) in self.next().items() if healthy}

    def end(self) -> None:
        self._call.cancel()
        self._thread.join()

    def _read(self) -> None:
        try:
            for answer in self._call:
                self.sent.put(
                    {
                        one.id: (one.health == "Healthy", [node.id for node in one.topology.nodes])
                        for one in answer.devices
                    }
                )
        except grpc.RpcError:
            pass  # it ended
