"""The life of a running plugin: one event loop that owns the view, fed by the watches' threads."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import uvicorn

from scheduler_plugin.app import make_app
from scheduler_plugin.cluster import ClusterDecisions, Feed, connect
from scheduler_plugin.errors import BadSetting
from scheduler_plugin.objects import view_of
from scheduler_plugin.rail.admission import Admission
from scheduler_plugin.rail.anew import keep_deciding
from scheduler_plugin.settings import Settings, load
from scheduler_plugin.state import State
from scheduler_plugin.view import View

log = logging.getLogger("scheduler_plugin")

AT_ONCE = 5  # changes, of up to 0.2 ms each, that go into the view before requests have their turn again
LOOK_SECONDS = 2.0  # between looks at the settings' file and the certificate
OBJECTS_BETWEEN_COLLECTIONS = 50_000  # an answer about 5,000 nodes makes 5,000, without cycles; by default 700
SWITCH_SECONDS = (
    0.0005  # the longest that a watch's thread holds the interpreter while a request waits; by default 5 ms
)


class Listening(NamedTuple):
    """Where it serves; `certificate` None: without TLS."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


async def run(listening: Listening, view: Path | None, settings: Path | None) -> None:
    """Serves until SIGTERM or SIGINT. Raises BadSetting, NoCluster, OSError."""
    gc.disable()  # until the view is there: what it is made of has no cycles
    state = State(View() if view is None else view_of(view), load(settings) if settings else Settings())
    sys.setswitchinterval(SWITCH_SECONDS)
    changed = asyncio.Event()
    background: list[asyncio.Task[None]] = []
    feed = admission = None
    if view is None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        cluster = connect()
        decisions = ClusterDecisions(cluster)
        admission = Admission(state, decisions)
        feed = Feed(cluster, wake)
        state.unsynced = feed.unsynced
        feed.start()
        background.append(asyncio.create_task(_keep_up(state, feed, changed)))
        background.append(asyncio.create_task(keep_deciding(state, decisions)))
    else:
        settle(state.view)
    if settings:
        background.append(asyncio.create_task(_reload(state, settings)))
    config = _configured(state, listening, admission)
    if config.ssl and listening.certificate and listening.key:
        background.append(asyncio.create_task(_renew(config.ssl, listening.certificate, listening.key)))
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, setattr, server, "should_exit", True)
    bound = _bound(listening)
    log.info("serving on %s:%d", *bound.getsockname()[:2])
    serving = asyncio.create_task(server.serve([bound]))
    try:
        done, _ = await asyncio.wait([serving, *background], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # what feeds the view must not end alone
    finally:
        server.should_exit = True
        if feed:
            feed.stop()
        for task in background:
            task.cancel()
        await serving


class _Server(uvicorn.Server):
    """A server whose process ends by itself: uvicorn's would raise the signal once more at its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def settle(view: View) -> None:
    """What is in memory now stays: collections need not go through it again, which took up to 100 ms of a request."""
    view.pack()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    gc.enable()


async def _keep_up(state: State, feed: Feed, changed: asyncio.Event) -> None:
    """Brings changes into the view, a few at a time."""
    complete = False
    while True:
        await changed.wait()
        changed.clear()
        while feed.apply(state.view, AT_ONCE):
            if complete:
                state.view.refresh()
            await asyncio.sleep(0)
        state.view.refresh()
        if not complete and not feed.unsynced():
            complete = True
            settle(state.view)
            log.info("synced: %s", ", ".join(f"{count} {kind}" for kind, count in state.view.counts().items()))


async def _reload(state: State, path: Path) -> None:
    """Uses the settings' file anew whenever it has changed; one that is not usable changes nothing."""
    before = await asyncio.to_thread(path.read_bytes)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            if (now := await asyncio.to_thread(path.read_bytes)) == before:
                continue
            before = now
            state.use(await asyncio.to_thread(load, path))
        except (OSError, BadSetting) as error:
            log.error("the settings stay as they are: %s", error)  # noqa: TRY400 - the file's fault, not ours
            state.metrics.settings_valid(False)
        else:
            log.info("settings read from %s", path)
            state.metrics.settings_valid(True)


async def _renew(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Serves a certificate that has changed on the disk, to the connections that come after that."""
    before = await asyncio.to_thread(_both, certificate, key)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            if (now := await asyncio.to_thread(_both, certificate, key)) == before:
                continue
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)  # it may be half of a change
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate stays as it is: %s", error)
        else:
            before = now
            log.info("serving a new certificate")


def _both(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    return certificate.read_bytes(), key.read_bytes()


def _configured(state: State, listening: Listening, admission: Admission | None) -> uvicorn.Config:
    config = uvicorn.Config(
        make_app(state, admission),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    if listening.certificate:
        config.ssl_certfile, config.ssl_keyfile = str(listening.certificate), str(listening.key)
        if listening.client_ca:
            config.ssl_ca_certs, config.ssl_cert_reqs = str(listening.client_ca), ssl.CERT_REQUIRED
    config.load()
    return config


def _bound(listening: Listening) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        listening.host or None, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(where)
    return bound
