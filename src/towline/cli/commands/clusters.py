"""`tow clusters`: places to run."""

from __future__ import annotations

from towline.cli.login import log_in
from towline.cli.options import Parser, sbatch_options
from towline.cli.session import open_session
from towline.cli.terminal import mark, printable, say, say_json, tell
from towline.cli.terminal.machine_table import show_machines
from towline.cli.terminal.table import show_table
from towline.client.servers import forget, is_known, known_servers
from towline.client.submission import this_folder
from towline.client.transport import quoted, with_query
from towline.model.names import QUEUES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable
    from typing import Any

    from towline.client.session import Session

EXAMPLES = """
tow clusters
tow clusters add lab gpu1 me@10.0.0.5:2222
tow clusters add lab gpu1 --setup 'source env/bin/activate'
tow clusters add cedar --slurm me@cedar.example.org -o account=def-x
tow clusters add msc --gridengine me@msc.example.org -o q=cpu
tow clusters add team --connect .pitconnect.txt
tow clusters default lab
tow clusters remove lab
"""


def parser() -> Parser:
    parser = Parser(
        "clusters",
        "[list | add NAME MACHINE... | default NAME | remove NAME] [options]",
        "List, add and remove clusters, or choose the one that is meant without -c. A machine is\n"
        "a name from ~/.ssh/config, user@host:port, or `this` machine; adding a cluster looks at\n"
        "each and shows what it found. A Slurm or a Grid Engine is added by its access node: tow\n"
        "clusters add NAME --slurm MACHINE, or --gridengine MACHINE.",
        EXAMPLES,
    )
    parser.mixed = True
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=["list", "add", "default", "remove"],
        help="what to do",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the cluster's name")
    parser.add_argument("machines", nargs="*", metavar="MACHINE", help="its machines")
    for kind, title in QUEUES.items():
        text = f"it is the {title} with this access node"
        parser.add_argument(f"--{kind}", metavar="MACHINE", help=text)
    parser.add_sbatch_option("an option of sbatch or qsub for all its jobs; may be repeated")
    parser.add_argument("--setup", metavar="TEXT", help="shell text to run before each of its jobs")
    parser.add_argument("--folder", metavar="PATH", help="where its jobs live (~/.towline)")
    parser.add_argument("--server", metavar="URL", help="it is the team's server at this address")
    parser.add_argument("--connect", metavar="FILE", help="server: its address and certificate")
    parser.add_argument("--user", metavar="NAME", default="", help="server: your account there")
    parser.add_argument(
        "--password-stdin", action="store_true", help="server: the password is in stdin"
    )
    parser.add_argument("--offline", action="store_true", help="add it though nothing answers now")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    asking = parser()
    options = asking.read(args)
    session = open_session()
    if options.action == "list":
        if options.name:
            asking.error("`list` takes no name; the machines of one cluster: tow machines -c NAME")
        return _list(session, options.json)
    if not options.name:
        asking.error(f"which cluster? tow clusters {options.action} NAME")
    if options.action in ("remove", "default"):
        if options.machines:
            asking.error(f"`{options.action}` takes one cluster at a time")
        return (
            _remove(session, options) if options.action == "remove" else _default(session, options)
        )
    if options.server or options.connect:
        return _add_server(options)
    queues = [kind for kind in QUEUES if getattr(options, kind)]
    if options.option and not queues:
        asking.error(f"-o gives options of a queue, so it goes with {_either(QUEUES)}")
    if len(queues) > 1:
        asking.error(f"a cluster is of one kind: --{queues[0]} or --{queues[1]}")
    if queues and options.machines:
        title = QUEUES[queues[0]]
        asking.error(f"a {title} knows its machines itself: name only its access node")
    if not (options.machines or queues):
        asking.error("which machines? tow clusters add NAME MACHINE...")
    return _add(session, options)


def _either(kinds: Iterable[str]) -> str:
    return " or ".join(f"--{kind}" for kind in kinds)


def _list(session: Session, json: bool) -> int:
    answer = session.call("GET", with_query("/v1/clusters", cwd=this_folder()))
    answer["clusters"] += [
        {"name": one.name, "kind": "server", "host": one.url, "from": f"signed in as {one.account}"}
        for one in known_servers(session.paths)
    ]
    if json:
        say_json(answer)
        return 0
    rows = [
        [
            str(cluster["name"]) + (" (default)" if cluster.get("default") else ""),
            str(cluster["kind"]),
            ", ".join(cluster.get("machines") or [cluster.get("host") or ""]),
            str(cluster.get("from") or ""),
        ]
        for cluster in answer["clusters"]
    ]
    show_table(["CLUSTER", "KIND", "MACHINES", "FROM"], rows)
    return 0


def _add(session: Session, options: Namespace) -> int:
    logins = []
    machines: list[dict[str, Any]] = []
    added = True
    for header, _ in session.frames("POST", "/v1/clusters", _new_cluster(options)):
        step = header.get("step") or {}
        machines = header.get("machines") or machines
        added = header.get("added", added)
        if step.get("login"):
            logins.append(step["login"])
        if options.json:
            say_json(header)
        elif step:
            _say_step(step)
    if not added and not options.json:
        tell("tow: nothing was added")
        tell("  mend that and try again; or keep it for later: --offline")
    if options.json or not added:
        return 0 if added else 1
    if logins and log_in(session, logins):
        target = with_query("/v1/machines", cwd=this_folder(), cluster=options.name)
        machines = session.call("GET", target)["machines"]
    if machines:
        show_machines(machines)
    if any(machine["state"] == "online" for machine in machines):
        say(f"added {options.name}; now: tow run -c {options.name} COMMAND")
    else:
        say(f"added {options.name}, but no machine of it answers yet: tow doctor -c {options.name}")
    return 0


def _add_server(options: Namespace) -> int:
    """A team's server: signed in to here, and talked to directly from then on."""
    from towline.cli.team import add_server

    server = add_server(
        options.name,
        options.server or "",
        options.connect or "",
        options.user,
        options.password_stdin,
    )
    if options.json:
        say_json({"name": server.name, "url": server.url, "account": server.account})
    else:
        say(f"signed in to {server.url} as {server.account}")
        say(f"now: tow run -c {server.name} COMMAND, and tow @{server.name} status")
    return 0


def _new_cluster(options: Namespace) -> dict[str, Any]:
    body: dict[str, Any] = {"name": options.name, "machines": options.machines}
    chosen = {name: getattr(options, name) for name in ("setup", "folder")}
    body.update({name: value for name, value in chosen.items() if value is not None})
    for kind in QUEUES:
        if host := getattr(options, kind):
            body |= {"kind": kind, "host": host}
    if options.option:
        body["options"] = sbatch_options(options)
    if options.offline:
        body["offline"] = True
    return body


def _say_step(step: dict[str, Any]) -> None:
    machine = f"{printable(str(step['machine']))}: " if step.get("machine") else ""
    say(f"{mark(step.get('ok'))} {machine}{printable(str(step.get('text') or ''))}")
    if step.get("hint"):
        say(f"    {printable(str(step['hint']))}")


def _remove(session: Session, options: Namespace) -> int:
    if is_known(session.paths, options.name):
        forget(session.paths, options.name)
        say_json({}) if options.json else say(f"forgot the server {options.name}")
        return 0
    answer = session.call("DELETE", f"/v1/clusters/{quoted(options.name)}")
    if options.json:
        say_json(answer)
    else:
        say(f"removed {options.name}")
    return 0


def _default(session: Session, options: Namespace) -> int:
    answer = session.call("POST", "/v1/clusters/default", {"name": options.name}, repeat=True)
    if options.json:
        say_json(answer)
    else:
        say(f"{options.name} is meant where no -c is given: tow run COMMAND")
    return 0
