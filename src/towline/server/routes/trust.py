"""Project files: what the one of a folder wants, and which the user trusts."""

import os

import msgspec

from towline.api.files import ProjectView, Revoked, TrustedNow, TrustView
from towline.config.load import project_of
from towline.config.project import PROJECT_FILE, Project
from towline.errors import NotFound, TowlineError
from towline.model.odd_text import original
from towline.server.endpoints import Call, Endpoint, get, post
from towline.workspace.ask import checked_folder
from towline.workspace.local import LocalWorkspace


class TrustQuery(msgspec.Struct):
    cwd: str = ""


class TrustedFolder(msgspec.Struct):
    cwd: str
    #: What the user was shown; "": whatever is there now.
    digest: str = ""


@get("/v1/trust")
async def show(call: Call, query: TrustQuery) -> TrustView:
    """The file that holds in a folder, and all that are trusted."""
    workspace = call.local
    grants = [
        {**msgspec.to_builtins(grant), "file": original(grant.file)}
        for grant in workspace.configuration.trusted.grants()
    ]
    project = project_of(checked_folder(query.cwd)) if query.cwd else Project()
    return {"project": _view(workspace, project) if project.file else None, "trusted": grants}


@post("/v1/trust")
async def trust(call: Call, body: TrustedFolder) -> TrustedNow:
    """Trust the file that holds in a folder, as it was shown to the user."""
    workspace = call.local
    project = _project(body.cwd)
    if body.digest not in ("", project.digest()):
        raise TowlineError(f"{project.file} has just changed", hint="look at it again: tow trust")
    # What can never be used is not asked about: a file that is wrong, or changes the user's own.
    workspace.configuration.check(checked_folder(body.cwd))
    if project.demands():
        workspace.configuration.trusted.grant(project)
    return {"project": _view(workspace, project)}


@post("/v1/trust/revoke")
async def revoke(call: Call, body: TrustedFolder) -> Revoked:
    """Trust the file of a folder no more; it may be gone already."""
    workspace = call.local
    file = project_of(body.cwd).file or os.path.join(body.cwd, PROJECT_FILE)
    if not workspace.configuration.trusted.revoke(file):
        raise NotFound(f"{file} was not trusted", hint="those that are: tow trust --list")
    return {"file": file}


def _project(cwd: str) -> Project:
    project = project_of(checked_folder(cwd))
    if not project.file:
        raise NotFound(f"there is no towline.toml in {cwd} or above it")
    return project


def _view(workspace: LocalWorkspace, project: Project) -> ProjectView:
    return {
        "file": project.file,
        "digest": project.digest(),
        "settings": project.demands(),
        "trusted": not project.demands() or workspace.configuration.trusted(project),
    }


ENDPOINTS: list[Endpoint] = [show, trust, revoke]
