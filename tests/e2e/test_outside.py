"""What a job writes outside of its folder comes home too when it is named, from any machine."""

from pathlib import Path

import pytest

from e2e.jobs import configure, show
from testbed.hosts import Hosts
from testbed.tow import Tow

WRITE = 'mkdir -p "$OUT"/now; echo $1 > "$OUT"/now/made; echo here > beside; ls -d OUT/now'


def test_a_folder_that_a_variable_names_comes_home_by_its_name(tow: Tow, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "older").write_text("was there before")
    named = ("-e", f"OUT={out}", "--back", "$OUT")
    done = tow("run", *named, "sh", "-c", WRITE, "sh", "first")
    assert (done.returncode, done.stdout) == (0, "OUT/now\n"), done
    home = tow.folder / "job_results/1"
    assert {str(path.relative_to(home)) for path in home.rglob("*")} == {
        "OUT", "OUT/now", "OUT/now/made",
    }  # fmt: skip
    assert (home / "OUT/now/made").read_text() == "first\n"
    done = tow("run", *named, "--back", "beside", "sh", "-c", WRITE, "sh", "second")
    assert (tow.folder / "job_results/2/beside").exists()
    assert (out / "now/made").read_text() == "second\n"
    assert (home / "OUT/now/made").read_text() == "first\n"


@pytest.mark.real
def test_paths_of_a_home_mean_the_one_over_there_and_all_else_arrives_as_typed(
    tow: Tow, hosts: Hosts
) -> None:
    configure(tow, "h1", cluster='env = { DATA = "~/data", OUT = "replaced" }')
    given = {"OUT": "$HOME/out", "MINE": "/disk/$USER/x", "PRICE": "5$HOME", "ALSO": "${HOME}"}
    words = [word for name, value in given.items() for word in ("-e", f"{name}={value}")]
    script = 'echo "$DATA|$OUT|$MINE|$PRICE|$ALSO"; mkdir -p "$OUT"; echo it > "$OUT"/made'
    script += '; echo no > "$OUT"/hidden; chmod 0 "$OUT"/hidden'
    done = tow("run", "-c", "lab", *words, "--back", "$OUT", "sh", "-c", script)
    expected = "/home/worker/data|/home/worker/out|/disk/worker/x|5$HOME|/home/worker\n"
    assert done.stdout == expected, done
    assert (tow.folder / "job_results/1/OUT/made").read_text() == "it\n"
    assert (hosts.home("h1") / "out/made").read_text() == "it\n"
    told = "left out OUT/hidden: it could not be read on its machine, where it still is"
    assert told in done.stderr and told in str(show(tow, 1)["history"])
    assert told in tow("results", "1").stderr
