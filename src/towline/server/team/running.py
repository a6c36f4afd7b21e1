"""The life of a team's server: the Engine of a folder, behind HTTPS."""

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Callable
from typing import Any

import uvicorn
import uvloop
from msgspec.structs import replace

from towline.config.load import load_with_sources
from towline.config.lock import BEAT_S, beat, leave, take
from towline.engine.api import EngineApi
from towline.engine.engine import Engine
from towline.engine.parts import EngineParts
from towline.errors import ConfigError, EngineError
from towline.server.app import application
from towline.server.endpoints import AppContext
from towline.server.rights import TEAM_RIGHTS
from towline.server.routes.team import TEAM_ENDPOINTS
from towline.server.serving import open_engine
from towline.server.team.audit import rotated
from towline.server.team.metrics import heard
from towline.server.team.middleware import TeamMiddleware
from towline.server.team.nodes import is_walled
from towline.server.team.setting_up import certificate_files
from towline.server.team.settings import TeamPaths, TeamSettings, read_settings
from towline.server.team.team import Team
from towline.snapshot.blobs import BlobStore
from towline.workspace.base import Places
from towline.workspace.team import TeamWorkspace

log = logging.getLogger("towline")
_LOGS = 5
_MOST_CONNECTIONS = 2000
WITHOUT_WALLS = (
    "Jobs run under one account on each node, without walls between them: whoever may submit can "
    "read what others' jobs left there."
)
WITH_WALLS = "Jobs are walled in on each node: `pit show node:NAME` says what its walls leave open."


def run(folder: str, say: Callable[[str], None]) -> None:
    """Serve until told to go."""
    paths = TeamPaths(folder)
    settings = read_settings(paths)
    lock = take(paths)
    if lock is None:
        raise EngineError(f"the server of {paths.home} runs already")
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        handlers=[rotated(paths.server_log, _LOGS)],
    )
    try:
        uvloop.run(_serve(paths, settings, lock, say))
    finally:
        leave(lock)


def places_of(paths: TeamPaths, settings: TeamSettings) -> Places:
    """The clusters that the folder's `config.toml` names; none is made up."""
    config, sources = load_with_sources(paths.config_file)
    named = {name: one for name, one in config.clusters.items() if sources[name]}
    without = [name for name, one in named.items() if not is_walled(one)]
    if without and settings.isolation != "none":
        raise ConfigError(
            f"{paths.config_file} names clusters, and nothing keeps jobs there apart",
            f"wall them in by sandbox = true for {without[0]}, or say that this is meant: "
            f'isolation = "none" in {paths.settings_file}',
        )
    default = config.default_cluster if config.default_cluster in named else next(iter(named), "")
    return Places(
        replace(config, clusters=named, default_cluster=default),
        sources,
        paths.config_file,
    )


def team_workspace(engine: Engine, blobs: BlobStore, team: Team) -> TeamWorkspace:
    """The submitters' side of a team's server."""
    contents, paths = engine.store.contents, team.paths

    def sent(owner: str, snapshot: str) -> bool:
        return snapshot in contents.sent(owner, [snapshot]) and blobs.has(snapshot)

    def places() -> Places:
        return team.nodes.places(places_of(paths, team.settings))

    return TeamWorkspace(places, blobs, paths.results, sent, team.accounts.autoshared)


async def _serve(
    paths: TeamPaths, settings: TeamSettings, lock: int, say: Callable[[str], None]
) -> None:
    places_of(paths, settings)
    opened = open_engine(paths)
    team = Team(opened.engine, paths, settings)
    workspace = team_workspace(opened.engine, opened.backends.blobs, team)
    parts = EngineParts(opened.engine, opened.backends, paths, workspace, opens_ports=False)
    team.begin(parts, lambda: workspace.places(None))
    loop_task = asyncio.create_task(opened.engine.run(), name="engine")
    await parts.open()
    team.nodes.connect()
    going = asyncio.Event()
    app = application(AppContext(EngineApi(parts), workspace, team), TEAM_ENDPOINTS, TEAM_RIGHTS)
    server = _server(TeamMiddleware(parts, team, app, heard), paths, settings)
    listener = _bind(settings)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, going.set)
    named = places_of(paths, settings).config.clusters.values()
    say(WITH_WALLS if team.nodes.all_walled(named) else WITHOUT_WALLS)
    say(f"serving {settings.url} on {settings.host} port {listener.getsockname()[1]}")
    beating = asyncio.create_task(_beat(lock))
    try:
        stop = asyncio.create_task(going.wait())
        await asyncio.wait({stop, serving, loop_task}, return_when=asyncio.FIRST_COMPLETED)
        if loop_task.done():
            log.error("the Engine's loop ended", exc_info=loop_task.exception())
    finally:
        listener.close()
        server.should_exit = True
        beating.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        loop_task.cancel()
        await asyncio.gather(loop_task, return_exceptions=True)
        await parts.close()
        team.close()


async def _beat(lock: int) -> None:
    while True:
        await asyncio.sleep(BEAT_S / 2)
        with contextlib.suppress(OSError):
            beat(lock)


def _bind(settings: TeamSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        where = f"{settings.host} port {settings.port}"
        raise EngineError(f"cannot listen on {where}: {error.strerror}") from None
    return listener


class TeamHttpServer(uvicorn.Server):
    """Signals are ours to handle: a running stream must not keep the server from going."""

    def capture_signals(self) -> Any:
        return contextlib.nullcontext()


def _server(app: Any, paths: TeamPaths, settings: TeamSettings) -> Any:
    certificate, key = certificate_files(paths, settings)
    config = uvicorn.Config(
        app,
        http="httptools",
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
        limit_concurrency=_MOST_CONNECTIONS,
        loop="none",
        server_header=False,
        date_header=False,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificate {certificate} cannot be used: {error}") from None
    return TeamHttpServer(config)
