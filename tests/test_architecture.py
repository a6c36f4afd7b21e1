"""The shape of the code: layers, purity, sizes, as ARCHITECTURE.md draws them."""

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from towline.server.rights import check_complete
from towline.server.routes import ENDPOINTS
from towline.server.routes.engine import retire_with

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "towline"
PLUGINS = ROOT / "src" / "hydra_plugins"
PURE = {"core", "probes", "model"}
# What would make a decision depend on anything but its arguments.
IMPURE = {
    "asyncio",
    "datetime",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
LONGEST_FILE = 400
LONGEST_FUNCTION = 50
MOST_FILES = 20
#: Folders of files that are all alike, each named for the word that is typed.
LISTS = {"cli/commands"}
#: Imported once something is submitted to a team's server: the submitter's side runs in the client.
CLIENTS_OWN_SUBMITTER = ("client/team.py", "towline.workspace.sending.")
CLIENT_MAY_KNOW = ("client", "errors", "version", "config.paths", "config.lock", "model")
#: What is done in the submitter's folder, which may be on another machine than the Engine.
OF_THE_SUBMITTER = (
    *(f"towline.config.{name}." for name in ("edit", "load", "project", "trust")),
    *(
        f"towline.snapshot.{name}."
        for name in ("apart", "branch", "collecting", "compare", "folder", "git", "restore", "take")
    ),
    *(f"towline.workspace.{name}." for name in ("ask", "batch_ask", "draft", "local", "versions")),
)
VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}


def layers(title: str = "## Layers") -> dict[str, int]:
    """The rows under a title of ARCHITECTURE.md, top row highest: part -> height."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(rf"^{re.escape(title)}.*?```\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert block, f"ARCHITECTURE.md has no drawing under '{title}'"
    rows = [re.split(r"\s{3,}", line)[0].split() for line in block[1].splitlines()]
    return {part.rstrip("/"): height for height, row in enumerate(reversed(rows)) for part in row}


def python_files(*folders: Path) -> list[Path]:
    """Every Python file of the project's own code."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def named(path: Path) -> str:
    """The path as a reader of the project would say it."""
    return str(path.relative_to(ROOT))


def part_of(module: str, package: str = "towline") -> str:
    """The part of a package that a dotted module is in: towline.core.decide -> core."""
    inside = module.removeprefix(f"{package}.")
    return inside.split(".")[0] if inside != module else ""


def tree(path: Path) -> ast.Module:
    """Not kept: whenever memory is tidied, from then on, all of them would be looked at again."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def statements(path: Path) -> Iterator[ast.stmt]:
    """All of a file, also inside functions and classes; expressions hold none."""
    left: list[ast.AST] = [tree(path)]
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            yield node
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, inside, ())


@cache
def imported_modules(path: Path) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything a file imports, also inside functions."""
    package = ["towline", *path.relative_to(PACKAGE).parent.parts]
    found = []
    for node in statements(path):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return sorted(found)


def functions(path: Path) -> Iterator[tuple[int, str, int]]:
    """Line, name and length of every function of a file, decorators not counted."""
    for node in statements(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_every_part_of_the_package_has_a_place_in_the_layers() -> None:
    """A new folder is drawn in ARCHITECTURE.md, and a drawn one exists."""
    loose = {"__init__", "__main__", "version"}
    there = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }
    assert there - loose == set(layers())


def test_imports_point_down_only() -> None:
    """A layer knows what is below it and nothing of what is above."""
    height = layers()
    upward = [
        f"{named(path)}:{line}: {part} imports {name}"
        for path in python_files(PACKAGE)
        if (part := path.relative_to(PACKAGE).parts[0].removesuffix(".py")) in height
        for line, name in imported_modules(path)
        if name.startswith("towline.") and height.get(part_of(name), -1) > height[part]
    ]
    assert not upward, "\n".join(["imports that point up:", *upward])


@pytest.mark.parametrize("part", sorted(PURE))
def test_pure_parts_import_nothing_that_touches_the_world(part: str) -> None:
    """Decisions and parsers depend on their arguments alone: no clock, no chance, no I/O."""
    impure = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(PACKAGE / part)
        for line, name in imported_modules(path)
        if name.split(".")[0] in IMPURE
    ]
    assert not impure, "\n".join(["impure imports:", *impure])


@pytest.mark.parametrize("part", sorted(PURE))
def test_pure_parts_neither_open_files_nor_print(part: str) -> None:
    """I/O needs no import: the built-in ways are closed too."""
    calls = [
        f"{named(path)}:{node.lineno}: {node.func.id}()"
        for path in python_files(PACKAGE / part)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print", "input", "__import__", "exec", "eval"}
    ]
    assert not calls, "\n".join(["calls that touch the world:", *calls])


def test_dialects_of_queues_depend_on_their_arguments_alone() -> None:
    """A foreign command is a pair of pure functions: one makes it, one parses what it printed."""
    names = ("dialect", "verdicts", "options", "instead", "fitting")
    dialects = [path for name in names for path in PACKAGE.glob(f"backends/*/{name}.py")]
    assert len(dialects) > len(names)
    impure = [
        f"{named(path)}:{line}: {name}"
        for path in dialects
        for line, name in imported_modules(path)
        if name.split(".")[0] in IMPURE - {"datetime"}
    ]
    assert not impure, "\n".join(["impure imports:", *impure])


def test_an_attempt_in_a_queue_is_decided_on_by_arguments_alone() -> None:
    """Where exactly-once lives there is no clock, no chance and no waiting, all the way down."""
    impure, known = [], set()
    new = {f"towline.backends.queue.{name}" for name in ("attempt", "entries", "job_script")}
    while new:
        known |= new
        paths = {name: PACKAGE.parent / (name.replace(".", "/") + ".py") for name in new}
        imports = [
            (name, imported)
            for name, path in paths.items()
            for _, imported in imported_modules(path)
        ]
        impure += [f"{name}: {other}" for name, other in imports if other in IMPURE]
        inside = (name for _, name in imports if name.startswith("towline.backends.queue."))
        modules = {".".join(name.split(".")[:4]) for name in inside}
        new = {
            name for name in modules if (PACKAGE.parent / (name.replace(".", "/") + ".py")).exists()
        }
        new -= known
    assert "towline.backends.queue.change" in known
    assert not impure, "\n".join(["impure imports:", *impure])


def test_what_any_queue_needs_knows_of_no_particular_one() -> None:
    """Another queue is another dialect, and nothing else."""
    kinds = re.compile("slurm|sbatch|squeue|sacct|scancel|scontrol|srun|qsub|qstat|grid", re.I)
    particular = [
        f"{named(path)}:{number}: {line.strip()}"
        for path in python_files(PACKAGE / "backends" / "queue")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if kinds.search(line)
    ]
    assert not particular, "\n".join(["words of one queue:", *particular])


def test_what_runs_on_machines_knows_of_a_particular_queue_in_one_file() -> None:
    particular = [
        f"{named(path)}:{number}: {line.strip()}"
        for path in python_files(PACKAGE / "agent" / "remote")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if path.name != "site.py" and re.search("slurm|srun|scontrol|scancel", line, re.IGNORECASE)
    ]
    assert not particular, "\n".join(["words of one queue:", *particular])


def test_what_runs_on_machines_needs_only_the_standard_library() -> None:
    """Nothing is installed on a machine, so the agent may import only python3 and itself."""
    foreign = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(PACKAGE / "agent" / "remote")
        for line, name in imported_modules(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith("towline.agent.remote.")
    ]
    assert not foreign, "\n".join(["not on every machine:", *foreign])


def test_the_client_needs_only_the_standard_library_and_knows_no_terminal() -> None:
    """`tow status` is all but import time, and a program's terminal is not ours to write to."""
    allowed = tuple(f"towline.{part}." for part in CLIENT_MAY_KNOW)
    submitter = CLIENTS_OWN_SUBMITTER
    foreign = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(PACKAGE / "client")
        for line, name in imported_modules(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not f"{name}.".startswith(allowed)
        and not (named(path).endswith(submitter[0]) and name.startswith(submitter[1]))
    ]
    assert not foreign, "\n".join(["more than a client may need:", *foreign])


def test_what_the_client_imports_is_the_standard_library_all_the_way_down() -> None:
    """A cheap import of something expensive is expensive."""
    modules = [
        ".".join(["towline", *path.relative_to(PACKAGE).with_suffix("").parts])
        for path in python_files(PACKAGE / "client")
    ]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    # -S: nothing that is installed can be found.
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    ours = {".".join(name.split(".")[:2]) for name in done.stdout.split() if "towline." in name}
    assert ours <= {
        f"towline.{part}" for part in ("client", "config", "errors", "model", "version")
    }


def test_the_engine_knows_no_folder_configuration_or_git_of_a_submitter() -> None:
    """It takes specifications, and contents by their hashes; the rest is asked of a workspace."""
    known = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(PACKAGE / "engine")
        for line, name in imported_modules(path)
        if f"{name}.".startswith(OF_THE_SUBMITTER)
    ]
    words = [
        f"{named(path)}:{number}: {line.strip()}"
        for path in python_files(PACKAGE / "engine")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bcwd\b|getcwd", line)
    ]
    assert not known + words, "\n".join(["what the submitter alone knows:", *known, *words])


def test_every_endpoint_has_a_right_and_every_right_an_endpoint() -> None:
    """Nothing is served that nobody thought about."""
    served = [*ENDPOINTS, retire_with(lambda: None)]
    check_complete((one.method, one.path) for one in served)


def test_every_write_goes_through_the_one_writer() -> None:
    """A write anywhere else waits for the disk on the loop, and for the writer's lock."""
    words = r"(remember|forget|add|change|note)\w*"
    write = re.compile(rf"store\.(batches\.|results\.)?{words}\(|store\.commit\(")
    written = [
        f"{named(path)}:{number}: {line.strip()}"
        for part in ("engine", "server", "workspace")
        for path in python_files(PACKAGE / part)
        if path.name != "writing.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if write.search(line) and "lambda" not in line
    ]
    # What results have to say is written together, by whoever is first to wait for the writer.
    assert [line for line in written if "store.results.note(notes)" not in line] == []


def test_what_runs_on_machines_imports_itself_relatively() -> None:
    """It is shipped under another name, where `towline` does not exist."""
    absolute = [
        f"{named(path)}:{node.lineno}"
        for path in python_files(PACKAGE / "agent" / "remote")
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.ImportFrom) and not node.level and "towline" in str(node.module))
        or (isinstance(node, ast.Import) and any("towline" in a.name for a in node.names))
    ]
    assert not absolute, "\n".join(["absolute imports:", *absolute])


def test_nothing_is_pickled_but_calls_of_functions() -> None:
    """Unpickling runs what the other side wants; functions travel so, signed, to one's own jobs."""
    pickled = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(PACKAGE)
        if path.relative_to(PACKAGE).parts[0] != "functions"
        for line, name in imported_modules(path)
        if name.split(".")[0] in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    ]
    assert not pickled, "\n".join(["pickles:", *pickled])


def test_no_file_is_too_long_to_read() -> None:
    """A file has one subject; a longer one has two."""
    sizes = {
        named(path): len(path.read_text().splitlines())
        for path in python_files(PACKAGE, PLUGINS, ROOT / "tests", ROOT / "bench")
    }
    long = [f"{name}: {lines} lines" for name, lines in sizes.items() if lines > LONGEST_FILE]
    assert not long, "\n".join([f"over {LONGEST_FILE} lines:", *long])


def test_no_function_is_too_long_to_read() -> None:
    """A function fits on a screen."""
    long = [
        f"{named(path)}:{line}: {name} has {length} lines"
        for path in python_files(PACKAGE, PLUGINS, ROOT / "tests", ROOT / "bench")
        for line, name, length in functions(path)
        if length > LONGEST_FUNCTION
    ]
    assert not long, "\n".join([f"over {LONGEST_FUNCTION} lines:", *long])


def test_files_are_named_for_what_is_in_them() -> None:
    """A file called utils has no subject."""
    vague = [
        named(path)
        for path in python_files(PACKAGE, PLUGINS, ROOT / "tests", ROOT / "bench")
        if path.name in VAGUE_NAMES
    ]
    assert not vague, "\n".join(["names that say nothing:", *vague])


def test_no_folder_has_more_files_than_a_reader_can_look_over() -> None:
    """A flat folder of forty files has rooms in it that nobody drew."""
    folders = sorted({path.parent for path in python_files(PACKAGE)})
    crowded = [
        f"{named(folder)}: {count} files"
        for folder in folders
        if str(folder.relative_to(PACKAGE)) not in LISTS
        and (count := len(list(folder.glob("*.py")))) > MOST_FILES
    ]
    assert not crowded, "\n".join([f"over {MOST_FILES} files:", *crowded])
