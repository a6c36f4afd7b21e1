"""Batch files of the ssh scheduler, and the options that say what a job needs."""

import tomllib
from pathlib import Path

import pytest

from towline.cli.compat.batch_file import Task, read_tasks
from towline.cli.compat.execute_batch import parser
from towline.cli.compat.machine_files import read_machine
from towline.cli.compat.needs import argv_for, request_for
from towline.errors import TowlineError
from towline.model.grammar import parse_request
from towline.model.request import GpuNeed, Need

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ssh-scheduler"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("example1", "example2"):
        Path(name).mkdir()
    Path("test.py").touch()


def tasks(text: str, file: str = "batch.sh", commands_only: bool = False) -> list[Task]:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text)
    return read_tasks(file, commands_only)


def complaint(text: str, **how: bool) -> str:
    with pytest.raises(TowlineError) as caught:
        tasks(text, **how)
    assert caught.value.exit_code == 2
    return caught.value.text


def need(*words: str) -> Need:
    options = parser().parse_args(["batch.sh", "--machines", "m.yaml", *words])
    request = parse_request(request_for(options))
    assert request.process_count == 1
    return request.groups[0].need


def test_jobs_are_called_after_the_file_and_their_line() -> None:
    found = tasks("echo a\n\n# a comment\necho b && exit 1\n", "example/deep/batch_script.sh")
    assert [(task.name, task.number, task.command) for task in found] == [
        ("example_deep_batch_script.sh.1", 1, "echo a"),
        ("example_deep_batch_script.sh.4", 4, "echo b && exit 1"),
    ]
    assert all(task.only is None and task.back is None for task in found)


def test_a_file_below_a_dot_makes_no_hidden_results() -> None:
    assert tasks("true", "./batch.sh")[0].name == "batch.sh.1"
    assert tasks("true", "example1/../../outside.sh")[0].name == "_outside.sh.1"


@pytest.mark.parametrize("commands_only", [False, True])
def test_partial_commands_bring_their_own_copies_and_name(commands_only: bool) -> None:
    text = (
        "execute_remote --copy-forwards example1 test.py --copy-backwards example1 "
        "--job-name example1 'python test.py example1'\n"
        "execute_remote --copy-forward ./example2/ --machine other.yaml --verbose 'echo \"a b\"'\n"
    )
    first, second = tasks(text, commands_only=commands_only)
    assert (first.name, first.command) == ("example1", "python test.py example1")
    assert (first.only, first.back) == (["example1", "test.py"], ["example1"])
    assert (second.name, second.command) == ("batch.sh.2", 'echo "a b"')
    assert (second.only, second.back) == (["example2"], None)
    assert first.line.startswith("execute_remote --copy-forwards example1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no command in it"),
        ("true\nexecute_remote --copy-forwards example1 'true'", "line 2: the following arguments"),
        ("execute_remote --nonsense 'true'", "line 1: unrecognized arguments: --nonsense"),
        ("execute_remote --copy-forwards gone --job-name a 'true'", "line 1: there is no gone"),
        ("execute_remote --copy-forwards ../x --job-name a true", "line 1: --copy-forwards ../x"),
        ("execute_remote --copy-backwards /etc --job-name a true", "--copy-backwards /etc"),
        ("execute_remote --job-name a/b true", "line 1: 'a/b' cannot be the name"),
        ("execute_remote --job-name .. true", "line 1: '..' cannot be the name"),
        ("true\nexecute_remote --job-name batch.sh.1 true", "lines 1 and 2 are both called"),
    ],
)
def test_every_mistake_is_told_with_its_line(text: str, told: str) -> None:
    assert told in complaint(text)


def test_with_commands_a_plain_line_is_a_mistake() -> None:
    told = complaint("execute_remote true\necho plain", commands_only=True)
    assert "batch.sh, line 2: this is not an execute_remote command" in told


def test_a_command_that_only_begins_alike_is_bashs() -> None:
    assert tasks("execute_remote_all x")[0].command == "execute_remote_all x"


def test_needs_are_those_of_the_ssh_scheduler_when_nothing_is_said() -> None:
    assert need() == Need(
        cpus=1, mem_mb=7000, gpus=(GpuNeed(),), gpu_mem_mb=1000, gpu_util=0.75, gpu_reserved=True
    )


def test_every_option_changes_what_a_job_needs() -> None:
    assert need("--no-gpu-required") == Need(cpus=1, mem_mb=7000)
    shared = need("--memory-required=10000", "--gpu-memory-required=3000", "--no-reserve-gpu")
    assert (shared.mem_mb, shared.gpu_mem_mb, shared.gpu_reserved) == (10000, 3000, False)
    assert need("--num-cpus=8", "--gpu-utilization=0.5").gpu_util == 0.5
    assert need("--num-cpus=8").cpus == 8
    assert need("--reserve").exclusive
    assert not need("--gpu-utilization=0", "--no-reserve-gpu").gpu_reserved
    assert need("--gpu-utilization=1.1").gpu_util == 1


@pytest.mark.parametrize(
    "words", ["--num-cpus=0", "--memory-required=-1", "--gpu-utilization=1.2", "--num-cpus=nan"]
)
def test_needs_that_cannot_be_are_refused(words: str) -> None:
    with pytest.raises(TowlineError) as caught:
        need(words)
    assert caught.value.exit_code == 2


def test_a_whole_machine_is_not_told_which_gpu_is_its_own() -> None:
    hidden = ["env", "-u", "CUDA_VISIBLE_DEVICES"]
    options = parser().parse_args(["batch.sh", "--machines", "m.yaml", "--reserve"])
    assert argv_for("x y", options) == [*hidden, "bash", "-i", "-c", "x y"]
    options = parser().parse_args(["batch.sh", "--machines", "m.yaml"])
    assert argv_for("x y", options) == ["bash", "-i", "-c", "x y"]


def test_the_example_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = tmp_path / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    key.touch()
    monkeypatch.chdir(EXAMPLE)
    assert [task.name for task in read_tasks("batch_script.sh")] == [
        f"batch_script.sh.{number}" for number in (1, 2, 3, 4)
    ]
    assert read_machine("machine") == {"ssh": "ben@gpu1.example.org", "key": str(key)}
    assert read_machine("machine2.yaml")["ssh"] == "ben@gpu2.example.org"
    typed = Path("run.sh").read_text().splitlines()[-1].split()
    assert typed[0] == "execute_batch"
    assert parser().parse_args(typed[1:]).no_gpu_required


def test_execute_to_goes_by_the_name_that_the_repository_gave_it_as_well() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["execute_on"] == scripts["execute_to"]
