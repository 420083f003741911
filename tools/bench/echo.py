"""An extender that refuses nobody and scores 0: what being asked costs by itself. python -m tools.bench.echo PORT."""

import asyncio
import sys

import orjson
import uvloop


class Echo(asyncio.Protocol):
    """One connection of kube-scheduler's."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._data[:end]).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self._data) < end + 4 + length:
                return
            body = bytes(self._data[end + 4 : end + 4 + length])
            del self._data[: end + 4 + length]
            self._answer(orjson.loads(body)["NodeNames"], filters=b"/filter" in head.split(b"\r\n")[0])

    def _answer(self, names: list[str], *, filters: bool) -> None:
        answer = orjson.dumps({"NodeNames": names} if filters else [{"Host": name, "Score": 0} for name in names])
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
        self._transport.write(head + answer)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1])))
