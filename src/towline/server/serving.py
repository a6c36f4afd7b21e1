"""The life of one user's Engine: open what an earlier one left, serve, and go.

It serves a unix socket that only its user can open, and goes after long with nothing to do.
"""

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import signal
import socket
import sqlite3
import time
from typing import Any, NamedTuple

import uvloop

from towline.backends.registry import make_backends
from towline.backends.router import Backends
from towline.config.load import Configuration, load_config
from towline.config.lock import BEAT_S, beat, leave
from towline.config.paths import Paths
from towline.config.settings import EngineSettings
from towline.config.trust import Trusted
from towline.engine.engine import Engine
from towline.engine.parts import EngineParts
from towline.errors import ConfigError, EngineError, TowlineError
from towline.snapshot.blobs import BlobStore
from towline.store.store import Store
from towline.workspace.local import LocalWorkspace

log = logging.getLogger("towline")

_LOOK_HOME_S = 5.0
#: So long one waits until the programs that call machines are started.
_CALL_S = 0.1
_MOST_LOG = 8 * 1024 * 1024


class First(NamedTuple):
    """What is asked as soon as we serve: a job from this folder, for this cluster."""

    folder: str
    #: Empty: the default.
    cluster: str


def run(paths: Paths, lock: int, first: First | None = None) -> None:
    """Serve until told to go; the caller holds the lock, a file that is open."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    uvloop.run(_serve(paths, lock, first))


def _bind(paths: Paths) -> socket.socket:
    """A socket that was never open to anyone else, not even for a moment."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fresh = f"{paths.socket}.{os.getpid() % 1000}"
    for stale in (fresh, paths.socket):
        if os.path.lexists(stale):
            os.unlink(stale)
    before = os.umask(0o177)
    try:
        listener.bind(fresh)
    finally:
        os.umask(before)
    listener.listen(128)
    # Clients see the socket only once it answers.
    os.rename(fresh, paths.socket)
    return listener


def _store(paths: Paths) -> Store:
    try:
        return Store(paths.store_file)
    except sqlite3.Error as error:
        raise EngineError(
            f"the store {paths.store_file} cannot be used: {error}",
            hint="see that its disk has room and that it is yours to write; "
            "if it is damaged, move it away to start afresh",
        ) from error


def _workspace(paths: Paths, blobs: BlobStore) -> LocalWorkspace:
    configuration = Configuration(paths.config_file, Trusted(paths.trusted))
    return LocalWorkspace(configuration, blobs, paths.home)


class Opened(NamedTuple):
    """An Engine that can be served, with what it was left by an earlier one still untouched."""

    settings: EngineSettings
    engine: Engine
    backends: Backends


def open_engine(paths: Paths) -> Opened:
    """Open the store and the backends of a folder of state."""
    settings = _settings(paths)
    store = _store(paths)
    engine = Engine(store)
    backends = make_backends(
        store.engine_id,
        engine.report,
        BlobStore(os.path.join(paths.home, "blobs")),
        store.environment,
        settings.probe_every_s,
    )
    return Opened(settings, engine, backends)


async def _serve(paths: Paths, lock: int, first: First | None) -> None:
    settings, engine, backends = open_engine(paths)
    workspace = _workspace(paths, backends.blobs)
    parts = EngineParts(engine, backends, paths, workspace)
    loop_task = asyncio.create_task(engine.run(), name="engine")
    await parts.open()
    if first is not None:
        await _call_machines(parts, workspace, first)
    going = asyncio.Event()
    # Meanwhile machines are being connected: what serves takes as long to be read as all the rest.
    server = await asyncio.to_thread(_server, parts, workspace, going)
    gc.freeze()
    gc.enable()
    listener = _bind(paths)
    _write_pid(paths)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, going.set)
    watches = [
        asyncio.create_task(_idle(parts, settings.idle_exit_s, going)),
        asyncio.create_task(_wake_after_sleep(parts)),
        asyncio.create_task(_go_with_home(paths, lock, going)),
    ]
    try:
        stop = asyncio.create_task(going.wait())
        await asyncio.wait({stop, serving, loop_task}, return_when=asyncio.FIRST_COMPLETED)
        if loop_task.done():
            log.error("the Engine's loop ended", exc_info=loop_task.exception())
    finally:
        listener.close()
        if _is_ours(paths, lock):
            _leave(paths)
            leave(lock)
        server.should_exit = True
        for task in watches:
            task.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        loop_task.cancel()
        await asyncio.gather(loop_task, return_exceptions=True)
        await parts.close()


async def _call_machines(parts: EngineParts, workspace: LocalWorkspace, first: First) -> None:
    """Call the machines of the cluster that the first job is for."""
    try:
        places = workspace.places(first.folder)
        _, drivers = parts.intake.join(places, first.cluster or None)
    except (TowlineError, OSError):
        return  # whoever asks for the job is told
    # What is done next keeps this process busy, so it lets those go first that are to be called.
    calls = [driver.channel.called.wait() for driver in drivers]
    await asyncio.wait([asyncio.ensure_future(asyncio.gather(*calls))], timeout=_CALL_S)


def _server(parts: EngineParts, workspace: LocalWorkspace, going: asyncio.Event) -> Any:
    import uvicorn

    from towline.server.app import make_app
    from towline.server.peers import EngineOwner, PeerProtocol

    class Server(uvicorn.Server):
        """Signals are ours to handle: a running stream must not keep the Engine from going."""

        def capture_signals(self) -> Any:
            return contextlib.nullcontext()

    config = uvicorn.Config(
        make_app(parts, workspace, EngineOwner().principal_of, going.set),
        http=PeerProtocol,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        loop="none",
        server_header=False,
        date_header=False,
    )
    return Server(config)


def _settings(paths: Paths) -> EngineSettings:
    try:
        return load_config(paths.config_file).engine
    except ConfigError as error:
        # Every command that needs the configuration says what is wrong with it.
        log.warning("%s", error)
        return EngineSettings()


def _write_pid(paths: Paths) -> None:
    with open(paths.pid_file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(f"{os.getpid()}\n")


def _is_ours(paths: Paths, lock: int) -> bool:
    """False when the home was removed, or made anew: then it may be another Engine's."""
    try:
        return os.path.samestat(os.stat(paths.lock_file), os.fstat(lock))
    except OSError:
        return False


async def _go_with_home(paths: Paths, lock: int, going: asyncio.Event) -> None:
    """Nobody can reach an Engine whose home is gone, and what it would remember is lost."""
    beaten = time.monotonic()
    while True:
        await asyncio.sleep(_LOOK_HOME_S)
        trim_log(paths.log_file)
        if not _is_ours(paths, lock):
            going.set()
        elif time.monotonic() - beaten > BEAT_S - _LOOK_HOME_S:
            beaten = time.monotonic()
            with contextlib.suppress(OSError):
                beat(lock)


def trim_log(path: str) -> None:
    """Put a log that has become long aside, in place of the one that was put aside before."""
    try:
        if os.path.getsize(path) > _MOST_LOG:
            shutil.copyfile(path, f"{path}.1")
            os.chmod(f"{path}.1", 0o600)
            # Emptied, not replaced: it is what we write to.
            os.truncate(path, 0)
    except OSError:
        pass  # no room for two: it is tried again


def _leave(paths: Paths) -> None:
    for path in (paths.socket, paths.pid_file):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


async def _idle(parts: EngineParts, idle_exit_s: float, going: asyncio.Event) -> None:
    """Go when nothing was asked, ran or was forwarded for a while."""
    while idle_exit_s:
        await asyncio.sleep(min(idle_exit_s / 4, 30.0))
        busy = not parts.is_idle() or len(parts.forwards)
        if busy:
            parts.engine.last_active = parts.engine.clock()
        elif parts.engine.clock() - parts.engine.last_active > idle_exit_s:
            going.set()


async def _wake_after_sleep(parts: EngineParts) -> None:
    """A lid that was closed: try all machines at once, not when their back-off says."""
    while True:
        before = time.time()
        await asyncio.sleep(5.0)
        if time.time() - before > 20.0:
            for machine in parts.fleet.machines.values():
                machine.channel.redial()
