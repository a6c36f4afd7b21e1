"""A job in its box: what it shows of the job, and the command that it is started by."""

import os
import shutil
import time

from ..box import ability, arguments, description, system
from ..box.arguments import BoxPlan
from ..box.entering import BoxVisitor
from ..box.files import box_of
from ..box.keeper import BoxKeeper
from ..commands import process, process_tree
from ..content import trees
from ..machine import to_path
from ..records import record
from ..refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    from ..typed import Environ, Spec
    from .execution import Execution

    Box = Union[BoxKeeper, BoxVisitor]

#: Folders of a job that are in its box, at their own places; the others are about it.
SHOWN = ("/src", "/keep", "/home")
#: So long a box may take to be made, and how often to look.
BEING_MADE_S, LOOK_S = 30.0, 0.02
#: Where the shell inside says what became of the command; only it has this open.
MARK = b"/dev/fd/%d" % arguments.MARK
#: Variables that a job in a box has of the place that it comes from or is at, without being given
#: them: what programs are found by and how they speak. Keys, sockets and sessions are not.
PASSED = frozenset(
    b"PATH LANG LANGUAGE TZ TERM COLORTERM NO_COLOR SHELL LD_LIBRARY_PATH LIBRARY_PATH CPATH "
    b"MANPATH PKG_CONFIG_PATH VIRTUAL_ENV MODULEPATH LOADEDMODULES _LMFILES_ PYTHONPATH "
    b"PYTHONUNBUFFERED PYTHONHASHSEED CUDA_HOME CUDA_PATH ROCM_PATH CC CXX FC MAKEFLAGS".split()
)
PASSED_PREFIXES = (b"LC_", b"CONDA_", b"OMP_", b"MKL_", b"OPENBLAS_", b"NUMEXPR_", b"NCCL_")


class NoWalls(Exception):
    """This machine cannot wall in the job; it says why."""


def passed(environ: "Environ") -> "Environ":
    """What of an environment goes into a box by itself."""
    return {
        name: value
        for name, value in environ.items()
        if name in PASSED or name.startswith(PASSED_PREFIXES)
    }


def of_the_box(environ: "Environ", folder: bytes) -> None:
    """A home of its own, in the job's folder."""
    name = system.user_name().encode("utf-8", "surrogateescape")
    environ.update({b"HOME": folder + b"/home", b"USER": name, b"LOGNAME": name})
    environ[b"TMPDIR"] = b"/tmp"


def check(execution: "Execution") -> "ability.Ability":
    """What this machine can, before anything of the job is made. Raises NoWalls."""
    found = ability.ability(execution.home.root)
    if found.why:
        raise NoWalls("this machine cannot wall in jobs: %s" % found.why)
    if found.in_doubt and execution.spec["box"]["network"] == "own":
        raise NoWalls("this machine makes no network for the job: %s" % found.network_why)
    return found


def make_home(folder: str) -> None:
    """Anew for each run of an attempt."""
    shutil.rmtree(folder + "/home", ignore_errors=True)
    os.mkdir(folder + "/home", 0o700)


def binds_of(spec: "Spec", folder: str) -> "list[list[str]]":
    """What is shown: the job's own folders, what its links lead to, and what it was given."""
    own = [[folder + name, folder + name, "rw"] for name in SHOWN]
    linked = sorted({trees.place_of(target) for target in spec["links"].values()})
    shown = [[target, target, "ro"] for target in linked]
    given = [[to_path(path) for path in bind[:2]] + [bind[2]] for bind in spec["box"]["binds"]]
    binds = own + shown + [bind for bind in given if bind[1] not in linked]
    description.check_sources(binds)
    description.check_points([(inside, mode) for _, inside, mode in binds])
    return binds


def keeper_of(
    execution: "Execution", argv: "list[bytes]", environ: "Environ", folder: str
) -> "BoxKeeper":
    """Who will keep its box; `folder` is where the command runs. Raises NoWalls, ValueError."""
    spec, found = execution.spec, check(execution)
    argv = with_setup(argv, spec, environ)
    plan = BoxPlan(
        name=b"job-" + execution.key.encode()[-40:].lstrip(b"-."),
        environ=environ,
        binds=[
            (os.fsencode(outside), os.fsencode(inside), mode)
            for outside, inside, mode in binds_of(spec, execution.folder)
        ],
        folder=os.fsencode(folder),
        own_network=spec["box"]["network"] == "own" and bool(found.network),
        private_bytes=system.private_bytes(),
    )
    words = arguments.arguments(plan, system.look(spec["box"]["gpus"]), found.features)
    return BoxKeeper(execution.record, found.bwrap, plan, words, argv)


def with_setup(argv: "list[bytes]", spec: "Spec", environ: "Environ") -> "list[bytes]":
    """No profile is read inside: there are none."""
    argv = arguments.checked_inside(argv)
    if spec["setup"]:
        return process.with_setup(argv, spec["setup"].encode("utf-8"), MARK, environ)
    return argv


def to_be_asked(me: int, command: int, box: "Box | None") -> "list[int]":
    """The processes of a job that are to end. Where it is in a box of its own, not those that end
    the box by ending: what its keeper started, and the first process inside."""
    found = process_tree.below(me)
    if not isinstance(box, BoxKeeper):
        return found
    walls = set(process_tree.children(command))
    for child in list(walls):
        walls.update(process_tree.children(child))
    return [pid for pid in found if pid not in walls]


def way_in(execution: "Execution", argv: "list[bytes]", environ: "Environ", folder: str) -> "Box":
    """A box for a job, or the way into the one of the job that it is beside."""
    try:
        if execution.spec["at"]:
            return enter(execution, argv, environ, folder)
        return keeper_of(execution, argv, environ, folder)
    except (ValueError, Refusal) as problem:
        raise NoWalls("its walls could not be made: %s" % problem) from None


def enter(
    execution: "Execution", argv: "list[bytes]", environ: "Environ", folder: str
) -> "BoxVisitor":
    """A further command in the box of the job that `execution` is beside. Raises CannotStart."""
    spec = execution.spec
    init = await_box(execution, execution.home.record(spec["at"]))
    if init is None:
        raise process.CannotStart("not_found", None, "the job's box is not there any more")
    if spec["setup"]:
        setup = spec["setup"].encode("utf-8")
        argv = process.with_setup(argv, setup, b"/dev/null", environ)
    return BoxVisitor(init, argv, environ, os.fsencode(folder))


def await_box(execution: "Execution", record_of_job: str) -> "int | None":
    """The first process of a box that may just be being made; None when it is over."""
    until = time.monotonic() + BEING_MADE_S
    while time.monotonic() < until and record.read_exit(record_of_job) is None:
        init = box_of(record_of_job)
        if init is not None:
            return init
        execution.pause()
        execution.wait(LOOK_S)
    return None
