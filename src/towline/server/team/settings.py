"""The settings of a team's server: `server.toml` in its folder."""

import os
import tomllib
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from towline.config.paths import Paths
from towline.errors import ConfigError

FILE = "server.toml"
#: What people need to reach the server: its address, then the certificate to trust.
CONNECT_FILE = ".pitconnect.txt"


class Registration(StrEnum):
    """How somebody becomes a member."""

    #: Whoever reaches the server.
    OPEN = "open"
    #: Whoever has a code that an administrator made.
    INVITATION = "invitation"
    #: Whoever an administrator has agreed to afterwards.
    APPROVAL = "approval"


class TeamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What `server.toml` may say."""

    #: What people type; its host is in the certificate.
    url: str
    #: Where it listens.
    host: str = "0.0.0.0"
    port: Annotated[int, Meta(ge=0, le=65535)] = 7443
    registration: Registration = Registration.INVITATION
    token_days: Annotated[float, Meta(gt=0, le=3650)] = 30.0
    #: Nobody is told of others' jobs, not even of their titles.
    private_status: bool = False
    #: `none`: jobs run under one account on each node, and nothing is between them.
    isolation: str = ""
    #: Files of a certificate and its key; none: those that were made with the server.
    certificate: str = ""
    key: str = ""
    #: Where the data of the team is; none: `data` in the server's folder.
    data: str = ""


class TeamPaths(Paths):
    """The files of a team's server: those of an Engine, and its own."""

    def __init__(self, folder: str) -> None:
        home = os.path.abspath(folder)
        super().__init__(home, os.path.join(home, "config.toml"), os.path.join(home, "engine.sock"))
        self.settings_file = os.path.join(home, FILE)
        self.connect_file = os.path.join(home, CONNECT_FILE)
        self.audit_file = os.path.join(home, "audit.log")
        self.server_log = os.path.join(home, "server.log")
        self.results = os.path.join(home, "results")
        self.data = os.path.join(home, "data")
        self.certificate = os.path.join(home, "tls", "certificate.pem")
        self.key = os.path.join(home, "tls", "key.pem")


def read_settings(paths: TeamPaths) -> TeamSettings:
    file = paths.settings_file
    try:
        with open(file, "rb") as opened:
            return msgspec.convert(tomllib.load(opened), TeamSettings)
    except FileNotFoundError:
        raise ConfigError(
            f"{paths.home} is not the folder of a server: it has no {FILE}",
            f"make one: tow server init {paths.home}",
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file}: {error}") from None
