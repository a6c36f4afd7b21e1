"""Whatever a folder holds: the tree over there is the tree here, and nothing here is touched."""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.driver import Driver
from towline.backends.staging.chunks import UploadPace, chunks
from towline.config.settings import SnapshotSettings
from towline.snapshot.blobs import BlobStore
from towline.snapshot.restore import restore
from towline.snapshot.take import HashCache, Snapshot, take_snapshot

ODD = ["with space", "new\nline", "-dash", "ünï 雪", 'quo"te', "tab\t", "*", "$HOME", "\udcff", "a"]
names = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8),
).filter(lambda name: name not in (".", "..") and not is_special(name))
contents = st.one_of(st.binary(max_size=40), st.integers(0, 300_000).map(bytes))
files = st.tuples(st.just("file"), contents, st.booleans())
links = st.tuples(
    st.just("link"),
    st.sampled_from(["a", "../a", "..", ".", "/etc/passwd", "/nowhere", "with space", "\udcff/b"]),
)
trees = st.recursive(
    st.dictionaries(names, st.one_of(files, links), max_size=5),
    lambda inner: st.dictionaries(names, st.one_of(files, links, inner), max_size=5),
    max_leaves=12,
)
#: So many small files more that both ends keep them in packs.
MANY = {f"many{number}": ("file", b"%d" % number, False) for number in range(40)}
wide_trees = st.builds(lambda tree, many: tree | (MANY if many else {}), trees, st.booleans())
#: What can be the matter with a repository.
STATES = ["clean", "empty", "detached", "conflict", "worktree", "shallow", "submodules"]
steady = settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def is_special(name: str) -> bool:
    """Names that mean something to git or to Towline, and are tested where they do."""
    return name.lower().startswith(".git") or name in (".towignore", "__pycache__", "job_results")


@pytest.fixture
def fresh() -> Iterator[Path]:
    """The parent of the folders that the examples of one test make."""
    folder = Path(tempfile.mkdtemp(prefix="tow-trees-"))
    yield folder
    shutil.rmtree(folder)


def new_folder(parent: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=parent))


def git(folder: Path, *words: str, check: bool = True) -> bytes:
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
    quiet = ["-c", "gc.auto=0", "-c", "init.defaultBranch=main", "-c", "advice.detachedHead=false"]
    done = subprocess.run(
        ["git", *who, *quiet, "-C", str(folder), *words], check=check, capture_output=True
    )
    return done.stdout


def write_tree(folder: Path, tree: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, what in tree.items():
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        if isinstance(what, dict):
            write_tree(path, what)
        elif path.is_dir():
            continue
        elif what[0] == "link":
            path.symlink_to(what[1])
        else:
            path.write_bytes(what[1])
            path.chmod(0o755 if what[2] else 0o640)


def seen(folder: Path, with_empty: bool) -> dict[str, tuple[str, bytes]]:
    """Every file, link and empty folder below, without what belongs to git."""
    found: dict[str, tuple[str, bytes]] = {}
    for place, folders, plain in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        inside = [name for name in plain if name != ".git"]
        for name in [*inside, *(n for n in folders if os.path.islink(f"{place}/{n}"))]:
            path = f"{place}/{name}"
            found[os.path.relpath(path, folder)] = described(path)
        if with_empty and not inside and not folders and place != str(folder):
            found[os.path.relpath(place, folder)] = ("folder", b"")
    return found


def described(path: str) -> tuple[str, bytes]:
    if os.path.islink(path):
        return "link", os.readlink(os.fsencode(path))
    executable = os.lstat(path).st_mode & stat.S_IXUSR
    return "program" if executable else "file", Path(path).read_bytes()


def git_facts(repo: Path) -> dict[str, bytes]:
    """What git says of a repository, and every byte it keeps of it."""
    facts = {
        words: git(repo, "--no-optional-locks", *words.split(), check=False)
        for words in ("status --porcelain=v2 --branch -z", "stash list", "reflog", "for-each-ref")
    }
    for place in {git(repo, "rev-parse", "--absolute-git-dir"), git_common(repo)}:
        for path in sorted(Path(os.fsdecode(place.rstrip(b"\n"))).rglob("*")):
            if path.is_file():
                facts[str(path)] = hashlib.sha256(path.read_bytes()).digest()
    return facts


def git_common(repo: Path) -> bytes:
    return git(repo, "rev-parse", "--path-format=absolute", "--git-common-dir")


def take(folder: Path, beside: Path) -> tuple[Snapshot, BlobStore]:
    store = BlobStore(str(new_folder(beside) / "blobs"))
    return take_snapshot(str(folder), SnapshotSettings(), HashCache(), store), store


def commit_all(repo: Path, title: str) -> None:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", title)


def make_repo(state: str, beside: Path, before: dict[str, Any], change: dict[str, Any]) -> Path:
    """A repository in a certain state that holds `before`, with `change` on top, uncommitted."""
    repo = new_folder(beside) / "repo"
    write_tree(repo, before)
    git(repo, "init", "-q")
    if state != "empty":
        commit_all(repo, "first")
        commit_all(repo, "second")
    if state == "detached":
        git(repo, "checkout", "-q", "--detach", "HEAD~1")
    elif state == "conflict":
        make_conflict(repo)
    elif state == "worktree":
        git(repo, "worktree", "add", "-q", str(repo.parent / "tree"))
        repo = repo.parent / "tree"
    elif state == "shallow":
        clone = repo.parent / "clone"
        git(repo.parent, "clone", "-q", "--depth=1", f"file://{repo}", str(clone))
        repo = clone
    elif state == "submodules":
        add_submodules(repo)
    write_tree(repo, change)
    return repo


def make_conflict(repo: Path) -> None:
    for branch, text in (("one", "1"), ("two", "2")):
        git(repo, "checkout", "-q", "-b", branch, "main")
        (repo / "torn").write_text(text)
        commit_all(repo, branch)
    git(repo, "merge", "-q", "one", check=False)


def add_submodules(repo: Path) -> None:
    """A submodule that has one of its own, both dirty."""
    inner, outer = (repo.parent / name for name in ("inner", "outer"))
    for library in (inner, outer):
        write_tree(library, {"lib.py": ("file", b"1", False)})
        git(library, "init", "-q")
        if library is outer:
            git(outer, "submodule", "--quiet", "add", str(inner), "deep")
        commit_all(library, "library")
    git(repo, "submodule", "--quiet", "add", str(outer), "sub")
    git(repo, "submodule", "--quiet", "update", "--init", "--recursive")
    commit_all(repo, "with submodules")
    (repo / "sub" / "lib.py").write_text("2")
    (repo / "sub" / "deep" / "new.py").write_text("3")


@steady
@given(tree=wide_trees)
def test_a_folder_comes_back_as_it_is(fresh: Path, tree: dict[str, Any]) -> None:
    folder = new_folder(fresh) / "folder"
    write_tree(folder, tree)
    snapshot, store = take(folder, fresh)
    restore(store, snapshot.entries, str(fresh / snapshot.id / folder.parent.name))
    there = fresh / snapshot.id / folder.parent.name
    assert seen(there, with_empty=True) == seen(folder, with_empty=True)


@pytest.mark.parametrize("state", STATES)
@steady
@given(before=wide_trees, change=trees)
def test_a_repository_comes_back_as_it_is_and_is_not_touched(
    fresh: Path, state: str, before: dict[str, Any], change: dict[str, Any]
) -> None:
    repo = make_repo(state, fresh, before, change)
    facts, here = git_facts(repo), seen(repo, with_empty=False)
    snapshot, store = take(repo, fresh)
    there = new_folder(fresh)
    restore(store, snapshot.entries, str(there))
    assert seen(there, with_empty=False) == here
    assert git_facts(repo) == facts


@pytest.fixture
def agent(fresh: Path) -> Iterator[Driver]:
    driver = Driver(fresh / "root")
    try:
        yield driver
        driver.leave()
    finally:
        driver.kill()


class Sender:
    """Sends snapshots to an agent, the second as its difference from the first."""

    def __init__(self, agent: Driver) -> None:
        self.agent = agent
        self.count = 0

    def send(self, snapshot: Snapshot, store: BlobStore, base: Snapshot | None) -> None:
        hashes = list(snapshot.sizes)
        for chunk in chunks(
            store, self.agent.call("missing", hashes=hashes)["missing"], UploadPace()
        ):
            self.agent.call(chunk.op, chunk.body, **chunk.fields)
        fields: dict[str, Any] = {"entries": snapshot.entries}
        if base is not None:
            before = {entry[0]: entry for entry in base.entries}
            after = {entry[0] for entry in snapshot.entries}
            fields = {
                "base": base.id,
                "entries": [e for e in snapshot.entries if before.get(e[0]) != e],
                "removed": [path for path in before if path not in after],
            }
        self.agent.call("snapshot", snapshot=snapshot.id, **fields)

    def run(self, snapshot: Snapshot) -> Path:
        """The tree of a job."""
        self.count += 1
        key = f"j{self.count}"
        end = self.agent.run(key, "true", snapshot=snapshot.id)
        assert end["code"] == 0, end
        return self.agent.root / "jobs" / key / "src"


@steady
@given(one=wide_trees, two=wide_trees)
def test_a_job_gets_the_tree_also_when_only_the_difference_travelled(
    fresh: Path, agent: Driver, one: dict[str, Any], two: dict[str, Any]
) -> None:
    sender = Sender(agent)
    sender.count = len(list((agent.root / "jobs").iterdir()))
    base = None
    for tree in (one, two):
        folder = new_folder(fresh) / "folder"
        write_tree(folder, tree)
        snapshot, store = take(folder, fresh)
        sender.send(snapshot, store, base)
        there = sender.run(snapshot)
        assert seen(there, with_empty=True) == seen(folder, with_empty=True)
        base = snapshot
