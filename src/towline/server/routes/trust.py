"""Project files: what the one of a folder wants, and which the user trusts."""

import os
from typing import Any

import msgspec
from litestar import Request, Response, get, post

from towline.config.load import project_of
from towline.config.project import PROJECT_FILE, Project
from towline.engine.ask import checked_folder
from towline.engine.desk import Desk
from towline.errors import NotFound, TowlineError
from towline.model.odd_text import original
from towline.server.wire import answer, body_as


class Folder(msgspec.Struct):
    cwd: str
    #: What the user was shown; "": whatever is there now.
    digest: str = ""


@get("/v1/trust")
async def show(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The file that holds in a folder, and all that are trusted."""
    desk: Desk = request.app.state.desk
    grants = [
        {**msgspec.to_builtins(grant), "file": original(grant.file)}
        for grant in desk.configuration.trusted.grants()
    ]
    cwd = request.query_params.get("cwd")
    project = project_of(checked_folder(cwd)) if cwd else Project()
    return answer({"project": _view(desk, project) if project.file else None, "trusted": grants})


@post("/v1/trust", status_code=200)
async def trust(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Trust the file that holds in a folder, as it was shown to the user."""
    desk: Desk = request.app.state.desk
    ask = await body_as(request, Folder)
    project = _project(ask.cwd)
    if ask.digest not in ("", project.digest()):
        raise TowlineError(f"{project.file} has just changed", hint="look at it again: tow trust")
    # What can never be used is not asked about: a file that is wrong, or changes the user's own.
    desk.configuration.check(checked_folder(ask.cwd))
    if project.demands():
        desk.configuration.trusted.grant(project)
    return answer({"project": _view(desk, project)})


@post("/v1/trust/revoke", status_code=200)
async def revoke(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Trust the file of a folder no more; it may be gone already."""
    desk: Desk = request.app.state.desk
    cwd = (await body_as(request, Folder)).cwd
    file = project_of(cwd).file or os.path.join(cwd, PROJECT_FILE)
    if not desk.configuration.trusted.revoke(file):
        raise NotFound(f"{file} was not trusted", hint="those that are: tow trust --list")
    return answer({"file": file})


def _project(cwd: str) -> Project:
    project = project_of(checked_folder(cwd))
    if not project.file:
        raise NotFound(f"there is no towline.toml in {cwd} or above it")
    return project


def _view(desk: Desk, project: Project) -> dict[str, Any]:
    return {
        "file": project.file,
        "digest": project.digest(),
        "settings": project.demands(),
        "trusted": not project.demands() or desk.configuration.trusted(project),
    }


ROUTES = [show, trust, revoke]
