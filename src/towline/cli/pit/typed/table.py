"""The commands of `pit`: what each takes, what its help says, and which function does it."""

from __future__ import annotations

from towline.cli.pit.typed.grammar import Option, PitCommand

VERSION = Option("-V, --version", "output the version number")
#: What `pit --help` ends with: whatever is no command.
ANYTHING_ELSE = "*"


def _examples(*lines: str, notes: str = "") -> str:
    shown = ["    Examples:", "", *(f"    $ pit {line}" for line in lines)]
    return "\n".join([*shown, *(["", notes] if notes else [])])


_ABOUT_REQUESTS = """\
  "title" is a short text that will later help identifying the job and its purpose.
  "clusterRequest" is an expression to specify resources this job requires from the cluster.
  It's a comma separated list of "process requests".
  Each "process request" specifies the number of process instances and (divided by colon and in \
braces) which resources to allocate for one process instances (on one node).
  The first example will allocate 2 process instances. For each process, 8 "gtx1070" resources \
will get allocated.
  You can also provide a ".pitrequest.txt" file with the same content in your project root as \
default value."""
_ABOUT_PROPERTIES = """\
  "entity" is user:<name>, node:<name>, alias:<name> or group:<name>.
  Properties of users: fullname, email, password, autoshare, admin; quota of their data (10G).
  Properties of nodes: endpoint (ssh://account@host), isolation (walls, none), state (drain,
  online), data (where the node has the server's data: /nfs/pit; none), cpus (how many processes
  of one core fit on it, if not as many as it has cores).
  Property of aliases: name (the exact name of the resource). Properties of groups: title, quota.
  What is needed and not given is asked for."""
_ABOUT_ENTITIES = """\
  "entity" is me, user:<name>, node:<name>, group:<name>, alias:<name> or job:<number>;
  or one of the lists users, nodes, groups, aliases and jobs.
  jobs takes filters: since= till= user= title= asc= desc= limit= offset=; "%" in a title stands \
for anything."""
_ABOUT_GROUPS = """\
  "entity" is user:<name>, job:<number>, node:<name> (all its resources) or node:<name>:<index> \
(one of them)."""
_ABOUT_DATA = """\
  Besides jobs these have data: home (your own), shared (read-only), group:<name>, user:<name>."""
_WORKER = Option("-w, --worker <index>", "which of the job's processes is meant (default: 0)")
_FORCE = Option("-f, --force", "replaces what is there")
_GO_ON = Option("-c, --continue", "goes on with what is there in part")
_JSON = Option("--json", "prints JSON, for programs")

#: Those of the seed, in its order.
COMMANDS = [
    PitCommand(
        "add",
        "<entity> [properties...]",
        "adds an entity to the system",
        "entities.add",
        more=_examples(
            "add user:anna",
            "add node:n0 endpoint=ssh://pit@n0.lab",
            'add alias:gtx1070 name="GeForce GTX 1070"',
            'add group:students title="Students of 2026"',
            notes=_ABOUT_PROPERTIES,
        ),
    ),
    PitCommand(
        "remove",
        "<entity>",
        "removes an entity from the system",
        "entities.remove",
        alias="rm",
        more=_examples("remove user:anna", "rm node:n0", "rm job:190"),
    ),
    PitCommand(
        "set",
        "<entity> <assignments...>",
        "sets properties of an entity",
        "entities.change",
        more=_examples(
            "set user:anna email=anna@lab.org autoshare=students,staff",
            "set node:n0 state=drain",
            notes=_ABOUT_PROPERTIES,
        ),
    ),
    PitCommand(
        "get",
        "<entity> <property>",
        "gets a property of an entity",
        "entities.get",
        more=_examples("get user:anna email", "get job:190 state"),
    ),
    PitCommand(
        "show",
        "<entity>",
        "shows info about an entity",
        "showing.show",
        more=_examples(
            "show me",
            "show nodes",
            "show node:n0",
            "show job:190",
            "show jobs user=anna title=%light% limit=10",
            notes=_ABOUT_ENTITIES,
        ),
    ),
    PitCommand(
        "add-group",
        "<entity> <group>",
        "adds the entity to the access group",
        "entities.add_group",
        more=_examples(
            "add-group user:anna students",
            "add-group job:190 students",
            "add-group node:n0:1 students",
            notes=_ABOUT_GROUPS,
        ),
    ),
    PitCommand(
        "remove-group",
        "<entity> <group>",
        "removes the entity from the access group",
        "entities.remove_group",
        more=_examples(
            "remove-group user:anna students",
            "remove-group node:n0 students",
            notes=_ABOUT_GROUPS,
        ),
    ),
    PitCommand("stop", "<jobNumber>", "stops a running job", "jobs.stop"),
    PitCommand(
        "run",
        "<title> [clusterRequest]",
        "enqueues current directory as new job",
        "running.run",
        alias="put",
        options=[
            Option("-p, --private", "prevents automatic sharing of this job"),
            Option(
                "-c, --continue <jobNumber>",
                "continues job with provided number by copying its "
                '"keep" directory over to the new job',
            ),
            Option(
                "-d, --direct <commands>",
                "directly executes provided commands through bash instead of loading .compute file",
            ),
            Option("-l, --log", "waits for and prints job's log output"),
        ],
        more=_examples(
            'run "My task" 2:[8:gtx1070]',
            "run \"My command\" [] -d 'hostname; env'",
            notes=_ABOUT_REQUESTS,
        ),
    ),
    PitCommand(
        "log",
        "<jobNumber>",
        "show job's log",
        "logs.log",
        options=[Option("-f, --follow", "waits for the job's end (it always does)")],
    ),
    PitCommand(
        "download",
        "<jobNumber>",
        "downloads job directory as .tar.gz archive",
        "data.reading.download",
    ),
    PitCommand(
        "ls",
        "<jobNumber> [path]",
        "lists contents within a job directory",
        "data.reading.ls",
        more=_examples("ls 190", "ls 190 keep", "ls home", "ls shared sets", notes=_ABOUT_DATA),
    ),
    PitCommand(
        "cp",
        "<jobNumber> <jobPath> <fsPath>",
        "copies contents within from job directory to local file system",
        "data.reading.cp",
        more=_examples(
            "cp 190 keep/model.pt .",
            "cp 190 pit.log first-light.log",
            "cp shared sets/words.txt .",
            notes=_ABOUT_DATA,
        ),
    ),
    PitCommand(
        "mount",
        "<entity> [mountpoint]",
        "mounts the data directory of an entity to a local mountpoint",
        "data.mounting.mount",
        options=[Option("--shell", "starts a shell there, and unmounts when that ends")],
        more=_examples(
            "mount job:190 first-light", "mount --shell 190", "mount home", notes=_ABOUT_DATA
        ),
    ),
    PitCommand("status", "", "prints a job status report", "status.status", options=()),
]
#: Those that later versions of the client had, and what a server of accounts needs besides.
LATER = [
    PitCommand(
        "exec",
        "<jobNumber> [command...]",
        "runs a command beside a process of a running job",
        "beside.execute",
        options=[_WORKER],
        more=_examples("exec 190 -- nvidia-smi", "exec -w 1 190 -- ls -l"),
        verbatim=True,
    ),
    PitCommand(
        "forward",
        "<jobNumber> [ports...]",
        "makes ports of a process of a running job reachable on this machine",
        "beside.forward",
        options=[_WORKER],
        more=_examples("forward 190 6006", "forward 190 8080:80 6006"),
    ),
    PitCommand(
        "pull",
        "<entity> <remotePath> [localPath]",
        "copies a file of an entity to here, or to standard output",
        "data.copying.pull",
        options=[_FORCE, _GO_ON],
        more=_examples(
            "pull 190 keep/model.pt model.pt",
            "pull job:190 keep/loss.csv | tail",
            "pull group:staff sets/words.txt .",
            notes=_ABOUT_DATA,
        ),
    ),
    PitCommand(
        "push",
        "<entity> <remotePath> [localPath]",
        "copies a file, or standard input, to an entity",
        "data.copying.push",
        options=[_FORCE, _GO_ON],
        more=_examples(
            "push home sets/words.txt words.txt",
            "push group:staff sets/ words.txt",
            "push home notes.txt < notes.txt",
            notes=_ABOUT_DATA,
        ),
    ),
    PitCommand(
        "cat",
        "<entity> <path>",
        "prints a file of an entity",
        "data.copying.cat",
        more=_examples("cat 190 pit.log", "cat home notes.txt", notes=_ABOUT_DATA),
    ),
    PitCommand(
        "mkdir",
        "<entity> <path>",
        "makes a directory of an entity",
        "data.copying.mkdir",
        more=_examples("mkdir home sets/2026", notes=_ABOUT_DATA),
    ),
    PitCommand(
        "delete",
        "<entity> <path>",
        "deletes a file or directory of an entity",
        "data.copying.delete",
        more=_examples("delete home sets/2025", notes=_ABOUT_DATA),
    ),
    PitCommand("passwd", "[username]", "changes a password", "accounts.passwd"),
    PitCommand(
        "tokens",
        "[machine]",
        "lists the machines that you are logged in on, or logs one of them out",
        "accounts.tokens",
        options=[_JSON],
        more=_examples("tokens", "tokens old-laptop"),
    ),
]


def named(name: str) -> PitCommand | None:
    return next((one for one in [*COMMANDS, *LATER] if name in (one.name, one.alias)), None)
