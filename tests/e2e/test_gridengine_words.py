"""What is typed wrongly, or asks only: `tow qsub`, `qstat` and `qdel` beside the real ones."""

import re
import shlex
from subprocess import CompletedProcess

import pytest

from e2e.grid_jobs import configure
from testbed.gridengine import GridEngine
from testbed.tow import Tow

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

#: Refused before it is asked what there is: on any cluster in the same words.
WRONG = """\
-zzz
-N
-q
-v
-t
-S
-i
-p
-w
-M
-m
-pe
-pe smp
-hold_jid
-b y
-pe smp x -b y true
-pe smp 2-x -b y true
-pe smp 0 -b y true
-p 5000 -b y true
-p x -b y true
-p 10 -b y true
-m x -b y true
-m b,e -b y true
-w x -b y true
-w E -b y true
-j x -b y true
-b x true
-sync x -b y true
-now x -b y true
-r x -b y true
-shell x -b y true
-tc x -t 1-2 -b y true
-t a -b y true
-t x-3 -b y true
-t 0-3 -b y true
-t 1-3:0 -b y true
-t 3-1:-1 -b y true
-t 1-100000 -b y true
-a 99 -b y true
-a 13010000 -b y true
-v =1 -b y true
-N 1abc -b y true
-N none -b y true
-N '' -b y true
-N a/b -b y true
-N a:b -b y true
-N a@b -b y true
-N 'a*b' -b y true
-N 'a\\b' -b y true
-l h_rt=abc -b y true
-l h_rt= -b y true
-l h_vmem=1X -b y true
-l gpu=x -b y true
nofile.sh
./
"""
#: The same where the site has to be asked, and questions about what is not there.
ASKED = """\
qsub -l nosuchres=1 -b y true
qsub -q nosuch -b y true
qsub -pe nosuch 2 -b y true
qsub -P noproj -b y true
qsub -w v -b y true
qsub -w p -b y true
qsub -w v -pe smp 99 -b y true
qsub -w p -pe smp 99 -b y true
qstat
qstat -u nosuchuser
qstat -q nosuch
qstat -xml
qstat -s r
qstat -s huhohs
qstat -u
qstat -g x
qstat -j
qstat -j 99999
qstat -j nosuch
qstat -j 99998,99999
qstat -j 99999 -xml
qdel 99999
qdel 99999.2
qdel nosuch
qdel 'nosuch*'
qdel -zz
qdel -t 1
qdel -u nosuchuser
qdel -u '*'
qdel 1 -t
qdel 1 -t x
qdel 1.x
qrls 99999
qrls nosuch
qhold 99999
qhost -zzz
qhost -h nosuch
qacct -j 99999
qacct -j nosuch
"""
LINES = [*(f"qsub {line}" for line in WRONG.splitlines()), *ASKED.splitlines()]
#: What the real one says of each line is asked for in one go: rc, then both streams.
_EACH = (
    'bash -c "$line" </dev/null >out 2>err; '
    'printf "%s\\0" $? "$(cat out; echo .)" "$(cat err; echo .)"'
)


def real_answers(grid: GridEngine) -> dict[str, tuple[int, str, str]]:
    script = "qsub -sync y -b y true >/dev/null;"
    script += " until qacct -j true >/dev/null 2>&1; do sleep 0.1; done; "
    script += f'cd "$(mktemp -d)"; while IFS= read -r line; do {_EACH}; done'
    lines = "\n".join(LINES)
    script += f" <<'END'\n{lines}\nEND\n"
    parts = grid.worker("bash", "-lc", script).split("\0")[:-1]
    answers = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    told = [(int(code), out[:-1], err[:-1]) for code, out, err in answers]
    return dict(zip(LINES, told, strict=True))


def alike(code: int, out: str, err: str) -> tuple[int, str, str]:
    """With the numbers that a refused job used up, and who asked, as if they were the same."""
    out, err = (re.sub(r"\bJob \d+ ", "", text) for text in (out, err))
    out = re.sub(r"\b(worker|root)\b", "me", out)
    if "\nerror: " in err:
        # How it is to be typed comes first, in more or fewer words.
        err = err[err.index("\nerror: ") + 1 :]
    # What there is instead is named besides.
    lines = [line for line in err.splitlines() if not line.startswith(("its ", "-o NAME="))]
    return code, out, "\n".join(lines)


def ours(done: "CompletedProcess[str]") -> tuple[int, str, str]:
    return alike(done.returncode, done.stdout, done.stderr)


def test_what_is_wrong_is_told_as_the_real_one_tells_it(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    tow("clusters", "default", "msc")
    differs = {}
    for line, answer in real_answers(gridengine).items():
        said = ours(tow(*shlex.split(line)))
        if said != alike(*answer):
            differs[line] = {"real": alike(*answer), "ours": said}
    assert not differs
    assert not tow.json("status", "-a")["jobs"]


def test_options_in_a_script_are_refused_with_their_line(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    for number, option in enumerate(("-zzz", "-N", "-p x", "-m q", "-t 0-3")):
        text = f"#!/bin/sh\necho\n#$ {option}\n"
        (tow.folder / "z.sh").write_text(text)
        (gridengine.home("h1") / f"z{number}.sh").write_text(text)
        real = gridengine.run("h1", ["bash", "-lc", f"qsub z{number}.sh"])
        done = tow("qsub", "-q", "msc", "z.sh")
        assert (done.returncode, done.stdout) == (real.returncode, real.stdout)
        assert done.stderr.startswith(real.stderr), (real, done)
    (tow.folder / "z.sh").write_text("echo\n#$ -zzz\n")
    assert tow("qsub", "z.sh").stderr.endswith("\nline 2: #$ -zzz\n")
