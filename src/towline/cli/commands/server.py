"""`tow server`: a team's server, made, run and looked after."""

from __future__ import annotations

import os
import sys

from towline.cli.options import Parser
from towline.cli.terminal import say, say_json
from towline.errors import EngineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

EXAMPLES = """
tow server init /srv/towline --url https://gpu.example.org:7443 --admin anna
tow server run /srv/towline
tow server invite /srv/towline
tow server backup /srv/towline /backup/store.db
tow server unit /srv/towline > /etc/systemd/system/towline.service
"""
ACTIONS = ("init", "run", "invite", "unit", "backup", "restore")
PORT = 7443


def parser() -> Parser:
    parser = Parser(
        "server",
        "init | run | invite | unit | backup | restore  DIR [FILE] [options]",
        "The same Engine for a whole team: accounts, groups and HTTPS in front of it.\n"
        "DIR is its folder, which is on a disk of the machine that it runs on.",
        EXAMPLES,
    )
    parser.mixed = True
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("folder", metavar="DIR", help="the folder of the server")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="backup, restore: the copy of its store"
    )
    new = parser.add_argument_group("init")
    new.add_argument("--url", metavar="URL", help="what people type: https://HOST:PORT")
    new.add_argument("--admin", metavar="NAME", help="the first administrator")
    new.add_argument("--host", metavar="ADDRESS", default="0.0.0.0", help="where it listens (all)")
    new.add_argument("--port", metavar="N", type=int, help=f"its port (the URL's, or {PORT})")
    new.add_argument(
        "--registration",
        choices=["open", "invitation", "approval"],
        default="invitation",
        help="how people become members (invitation)",
    )
    new.add_argument("--certificate", metavar="FILE", default="", help="an own certificate (PEM)")
    new.add_argument("--key", metavar="FILE", default="", help="its key")
    new.add_argument(
        "--password-stdin", action="store_true", help="the password is the first line of stdin"
    )
    invited = parser.add_argument_group("invite")
    invited.add_argument("--name", metavar="NAME", default="", help="only under this name")
    invited.add_argument("--days", metavar="N", type=float, default=14.0, help="how long (14)")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    if (options.action in ("backup", "restore")) != (options.file is not None):
        raise UsageError(
            f"tow server {options.action} takes "
            + ("DIR and FILE" if options.file is None else "DIR alone")
        )
    if options.action == "unit":
        say(_unit(os.path.abspath(options.folder)))
        return 0
    try:
        import towline.server.team.setting_up  # noqa: F401
    except ImportError as error:
        raise EngineError(
            f"a server needs more than is installed here: {error.name}",
            "pip install 'towline[server]'",
        ) from None
    return {
        "init": _init,
        "run": _run,
        "invite": _invite,
        "backup": _backup,
        "restore": _restore,
    }[options.action](options)


def _init(options: Namespace) -> int:
    from towline.server.team.setting_up import NewServer, set_up
    from towline.server.team.settings import Registration

    if not options.admin:
        raise UsageError("a server needs a first administrator", "--admin NAME")
    port = PORT if options.port is None else options.port
    url = options.url or f"https://{os.uname().nodename}:{port}"
    if options.url and options.port is None:
        from towline.client.remote import host_and_port

        _, port = host_and_port(options.url)
    new = NewServer(
        url=url.rstrip("/"),
        host=options.host,
        port=port,
        administrator=options.admin,
        registration=Registration(options.registration),
        certificate=options.certificate,
        key=options.key,
    )
    paths = set_up(options.folder, new, _password(options))
    if options.json:
        say_json({"folder": paths.home, "url": new.url, "connect_file": paths.connect_file})
        return 0
    say(f"made {paths.home}; its first administrator is {options.admin}")
    say(f"run it:         tow server run {options.folder}")
    say(f"what members need to reach it: {paths.connect_file}")
    return 0


def _password(options: Namespace) -> str:
    """Typed twice on a terminal, or the first line of stdin; never an argument."""
    if options.password_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to type a password on", "use --password-stdin")
    from getpass import getpass

    password = getpass(f"Password of {options.admin}: ")
    if getpass("The same again: ") != password:
        raise UsageError("these were two different passwords")
    return password


def _run(options: Namespace) -> int:
    from towline.server.team.running import run

    def told(line: str) -> None:
        say(line)
        sys.stdout.flush()

    run(options.folder, told)
    return 0


def _invite(options: Namespace) -> int:
    from towline.server.team.setting_up import invite

    code = invite(options.folder, options.days, options.name)
    if options.json:
        say_json({"invitation": code, "days": options.days})
    else:
        say(code)
    return 0


def _backup(options: Namespace) -> int:
    from towline.server.team.setting_up import back_up

    back_up(options.folder, options.file)
    say_json({"file": options.file}) if options.json else say(f"wrote {options.file}")
    return 0


def _restore(options: Namespace) -> int:
    from towline.server.team.setting_up import restore

    before = restore(options.folder, options.file)
    if options.json:
        say_json({"before": before})
    else:
        say(f"the store is that of {options.file}; the one before is {before}")
    return 0


def _unit(folder: str) -> str:
    """What systemd is told: run it, and start it again when it ends."""
    return "\n".join(
        [
            "[Unit]",
            "Description=Towline, a team's server",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            f"ExecStart={_tow()} server run {_escaped(folder)}",
            f"User={_owner(folder)}",
            "Restart=always",
            "RestartSec=2",
            # Jobs on this machine outlive the server, as they do everywhere.
            "KillMode=process",
            "NoNewPrivileges=true",
            "UMask=0077",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
    )


def _tow() -> str:
    import shutil

    return _escaped(os.path.abspath(shutil.which("tow") or sys.argv[0]))


def _escaped(word: str) -> str:
    """One word of systemd's command line."""
    plain = word.replace("%", "%%").replace("$", "$$").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if set(plain) & set(" '\"\\;") else plain


def _owner(folder: str) -> str:
    from pwd import getpwuid

    try:
        return getpwuid(os.stat(folder).st_uid).pw_name
    except (OSError, KeyError):
        return "towline"
