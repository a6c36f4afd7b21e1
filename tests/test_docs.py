"""The documents are true: their links lead somewhere, and what the README types works as shown."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from testbed.hosts import Hosts
from testbed.slurm import Slurm
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.cli.main import command_names, load
from towline.cli.options import Parser, split_command

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SPANNING = re.DOTALL | re.MULTILINE
HERE, ON_HOSTS, ON_SLURM = "runs: here", "needs: hosts", "needs: slurm"
ON_GRID = "needs: gridengine"
EVERYWHERE = (HERE, ON_HOSTS, ON_SLURM, ON_GRID)
#: Commands that only look: what they show may need a moment to become what the page shows.
LOOKING = ("status", "why", "log", "machines", "show")
#: What differs from run to run -> what it is compared as.
UNSTABLE = (
    (r"\b((\d+(\.\d+)? (s|min|h) ?)+(ago)?|just now)(?=\s|$)", "TIME "),
    (r"(?<=^job \d )stopp(ing|ed)$", "STOPPING OR STOPPED"),
    (r"\b(python|slurm-wlm) \d+(\.\d+)+", r"\1 VERSION"),
    (r"\d+(\.\d+)? of \d+(?= )", "CPUS"),
    (r"\d+(\.\d+)? GB of \d+(\.\d+)? GB(?! free)", "MEMORY"),
    (r"\b\d+ MB\b", "MEMORY"),
    (r"(?<= on )h[23](?= ·)", "EITHER HOST"),
    (r"\s+", " "),
)


class Typed(NamedTuple):
    """A line behind a `$`, and the lines below it."""

    line: str
    shown: list[str]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> Iterator[str]:
    """Where the links of a page lead."""
    for match in re.finditer(r"\]\(([^)\s]+)\)", without_blocks(page.read_text())):
        yield match[1]


def without_blocks(text: str) -> str:
    # Links may have code as their text, so only whole blocks of code are taken out.
    return re.sub(r"^```.*?^```", "", text, flags=SPANNING)


def anchors(page: Path) -> set[str]:
    """What can stand behind a `#`, made from the headings as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def blocks(mark: str) -> list[list[Typed]]:
    """The console blocks of the README below a comment with this mark."""
    text = (ROOT / "README.md").read_text()
    found = re.findall(rf"<!-- {mark} -->\n```console\n(.*?)```", text, re.DOTALL)
    return [_typed(block) for block in found]


def _typed(block: str) -> list[Typed]:
    found: list[Typed] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Typed(line[2:], []))
        else:
            found[-1].shown.append(line)
    return found


def typed_words(page: Path) -> Iterator[list[str]]:
    """The words behind `tow` of every line that a page types, up to a pipe or a comment."""
    for block in re.findall(r"^```(?:console|sh)?\n(.*?)^```", page.read_text(), SPANNING):
        for line in re.findall(r"^(?:\$ )?tow (.+)$", block, re.MULTILINE):
            if not is_usage(line):
                words = shlex.shlex(line, posix=True, punctuation_chars=True)
                words.whitespace_split = True
                yield list(takewhile(lambda word: word[0] not in "|;&>", words))


def is_usage(line: str) -> bool:
    """`run [options] COMMAND...` describes what can be typed."""
    return bool(re.search(r"\[--|\[options|COMMAND|\[list|\[status|\bJOB\b", line))


def understood(words: list[str]) -> bool:
    """Whether a command reads these words without complaint; what it would do is not done."""
    name, *rest = words[1:] if words[0].startswith("@") else words
    if name not in command_names():
        return name in ("help", "version")
    command = load(name)
    if name == "batch":
        reading, rest, _ = command.reader(rest)
        return reads(reading, rest)
    if name in ("run", "exec"):
        rest, taken = split_command(rest, command.VALUED)
        rest += taken[:1] if name == "exec" else []
    return reads(command.parser(), rest)


def reads(parser: Parser, words: list[str]) -> bool:
    try:
        parser.read(words)
    except SystemExit:
        return False
    return True


def comparable(lines: list[str]) -> list[str]:
    """The stable parts of the lines, in any order: stdout and stderr come side by side."""
    stable = []
    for line in lines:
        for pattern, word in UNSTABLE:
            line = re.sub(pattern, word, line)
        stable.append(line.strip())
    return sorted(filter(None, stable))


def is_note(line: str) -> bool:
    """`job 3 · lab · waiting: ...`: whether a job has to wait is up to the machine's load."""
    return bool(re.match(r"job \d+ · ", line))


class Terminal:
    """Types what a page shows, with `tow` on the PATH, in one folder."""

    def __init__(self, tow: Tow, bin_folder: Path) -> None:
        program = bin_folder / "tow"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(tow.program)} "$@"\n')
        program.chmod(0o755)
        self.folder = tow.folder
        self.env = {**tow.env, "PATH": f"{bin_folder}:{tow.env['PATH']}"}

    def type(self, typed: Typed) -> None:
        """Type one line; it must show what the page shows."""
        looking = typed.line.split()[1] in LOOKING
        seen: list[str] = []

        def as_shown() -> bool:
            seen[:] = self._lines(typed.line)
            return comparable(seen) == comparable(typed.shown)

        if looking:
            wait_until(as_shown, timeout=60, on_timeout=lambda: _difference(typed, seen), every=0.5)
        else:
            assert as_shown(), _difference(typed, seen)

    def _lines(self, line: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
        shown = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        assert done.returncode == 0, f"$ {line}\nexit {done.returncode}\n" + "\n".join(shown)
        return [line for line in shown if not is_note(line)]


def _difference(typed: Typed, seen: list[str]) -> str:
    expected, found = comparable(typed.shown), comparable(seen)
    return "\n".join([f"$ {typed.line}", "expected:", *expected, "found:", *found])


@pytest.fixture
def terminal(tow: Tow, tmp_path: Path) -> Terminal:
    """A terminal in a folder with the example that the README trains."""
    (tow.folder / "train.py").write_text((ROOT / "examples" / "train.py").read_text())
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    return Terminal(tow, bin_folder)


@pytest.fixture
def gpu_hosts(hosts: Hosts, tow: Tow, tmp_path: Path) -> None:
    """The README's machines: gpu1 has two GTX 1070, gpu2 a GTX 1060."""
    names = {"h1": "gpu1", "h2": "gpu2"}
    text = hosts.ssh_config.read_text()
    for host, name in names.items():
        text = text.replace(f"Host {host}\n", f"Host {host} {name}\n")
    config = tmp_path / "ssh_config"
    config.write_text(text)
    tow.env["TOWLINE_SSH_CONFIG"] = str(config)
    big = {"name": "NVIDIA GeForce GTX 1070", "memory_total": 8192}
    hosts.set_gpus("h1", [big, big])
    hosts.set_gpus("h2", [{"name": "NVIDIA GeForce GTX 1060 6GB", "memory_total": 6144}])


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"https?://|mailto:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{named(page)} has links that lead nowhere: {broken}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        found = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
        waiting += [f for f in found if f.suffix == ".md" and f.exists() and f not in reached]
    assert [named(page) for page in PAGES if page not in reached] == []


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in command_names() if f"`tow {name}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_documents_name_only_commands_that_exist(page: Path) -> None:
    """`tow something` in a sentence is a command of this version."""
    known = {*command_names(), "help", "version"}
    unknown = set(re.findall(r"`tow ([a-z]+)\b", page.read_text())) - known
    assert not unknown, f"{named(page)} names commands that do not exist: {sorted(unknown)}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_documents_type_is_understood(page: Path) -> None:
    """Every line of code that begins with `tow` has a command and options that exist."""
    wrong = [f"tow {' '.join(words)}" for words in typed_words(page) if not understood(words)]
    assert not wrong, "\n".join([f"{named(page)} types what does not exist:", *wrong])


def test_every_recording_in_the_readme_is_run_by_a_test() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("```console") == sum(len(blocks(m)) for m in EVERYWHERE) > 0


@pytest.mark.slow
def test_the_readme_shows_what_this_machine_shows(terminal: Terminal) -> None:
    for block in blocks(HERE):
        for typed in block:
            terminal.type(typed)


@pytest.mark.real
@pytest.mark.usefixtures("gpu_hosts")
def test_the_readme_shows_what_ssh_machines_show(terminal: Terminal, tow_home: Path) -> None:
    """All of it, in order: the numbers of the jobs go on."""
    for block in [*blocks(HERE), *blocks(ON_HOSTS)]:
        for typed in block:
            terminal.type(typed)
            if typed.line.startswith("tow clusters add"):
                count_on_many_cpus(tow_home / "config.toml")


@pytest.mark.real
def test_the_readme_shows_what_a_slurm_shows(terminal: Terminal, slurm: Slurm, tow: Tow) -> None:
    go_on_after(ON_HOSTS, tow)
    for block in blocks(ON_SLURM):
        for typed in block:
            terminal.type(typed)


@pytest.mark.real
@pytest.mark.usefixtures("gridengine")
def test_the_readme_shows_what_a_grid_engine_shows(terminal: Terminal, tow: Tow) -> None:
    go_on_after(ON_SLURM, tow)
    for block in blocks(ON_GRID):
        for typed in block:
            terminal.type(typed)


def go_on_after(where: str, tow: Tow) -> None:
    """Have as many jobs as the page has before it."""
    before = "".join(line for block in blocks(where) for typed in block for line in typed.shown)
    for _ in range(max(map(int, re.findall(r"(?:job|done) (\d+)", before)))):
        tow("run", "-d", "--no-results", "true")


def count_on_many_cpus(config: Path) -> None:
    """Jobs wait for GPUs, as the README shows, however busy the CPUs of this machine are."""
    names = '"gpu1", "gpu2"'
    many = ", ".join(f"{{ ssh = {name}, cpus = 64 }}" for name in names.split(", "))
    text = config.read_text()
    assert names in text
    config.write_text(text.replace(names, many))


def test_the_demo_prints_commands_as_they_can_be_typed() -> None:
    text = (ROOT / "examples/demo.sh").read_text()
    show = text[text.index("show() {") : text.index("\n}\n") + 3]
    words = ["printf", "%s\\n", "a long one", "-r", "2:[]", 'echo "$RANK"']
    done = subprocess.run(
        ["bash", "-c", f'{show}\nshow "$@"', "bash", *words], capture_output=True, text=True
    )
    typed = done.stdout.splitlines()[1].removeprefix("$ ")
    assert shlex.split(typed) == words
    assert typed.endswith("""'a long one' -r '2:[]' 'echo "$RANK"'""")
