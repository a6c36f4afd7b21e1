"""`cedar.json` and `--sbatch_json`: how they are read, and what is wrong with them."""

from pathlib import Path

import pytest

from towline.cli.compat.submit import check_options, read_options
from towline.cli.compat.submit_file import Destination, read_destination
from towline.errors import TowlineError

USUAL = """{"host": "me@cedar.example.org",
 "sbatch": {"--mem": "16G", "--time": "3:00:00"}, "setup": ["source ~/env/bin/activate"]}"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder deep in a git repository."""
    here = tmp_path / "repository" / "a" / "b"
    here.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    monkeypatch.chdir(here)
    return here


def destination(file: str, text: str) -> Destination:
    Path(file).write_text(text)
    return read_destination(file)


def complaint(file: str, text: str) -> str:
    with pytest.raises(TowlineError) as caught:
        destination(file, text)
    assert caught.value.exit_code == 2
    return caught.value.text


def test_host_options_and_setup_are_read() -> None:
    found = destination("cedar.json", USUAL)
    assert (found.cluster, found.host, found.folder) == ("", "me@cedar.example.org", "")
    assert found.options == {"--mem": "16G", "--time": "3:00:00"}
    assert found.setup == "source ~/env/bin/activate"


def test_options_alone_belong_to_the_host_that_the_file_is_called_after() -> None:
    found = destination("cedar.json", '{"--mem": "16G", "--time": "3:00:00"}')
    assert found.host == "cedar"
    assert found.options == {"--mem": "16G", "--time": "3:00:00"}


def test_options_may_stand_beside_the_host() -> None:
    text = '{"host": "me@c", "--mem": "1G", "-p": "gpu", "sbatch": {"--mem": "2G"}}'
    assert destination("cedar.json", text).options == {"--mem": "2G", "-p": "gpu"}


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_yaml_is_taken_as_it_is_written(ending: str) -> None:
    text = "host: me@cedar\nsbatch:\n  time: 3:00:00\n  mem: 16G\n  exclusive:\n  requeue: yes\n"
    found = destination(f"cedar.{ending}", text)
    assert found.host == "me@cedar"
    assert found.options == {"time": "3:00:00", "mem": "16G", "exclusive": "", "requeue": "yes"}
    assert destination(f"cedar.{ending}", "--mem: 16G\n").host == "cedar"


def test_toml_is_read() -> None:
    text = 'host = "me@cedar"\nsetup = "module load python"\n[sbatch]\n--mem = "16G"\nnice = 5\n'
    found = destination("cedar.toml", text)
    assert (found.host, found.setup) == ("me@cedar", "module load python")
    assert found.options == {"--mem": "16G", "nice": "5"}


def test_values_need_not_be_texts() -> None:
    text = '{"sbatch": {"--exclusive": null, "--hold": false, "--x11": true, "--nice": 1.5}}'
    options = destination("cedar.json", text).options
    assert options == {"--exclusive": "true", "--hold": "False", "--x11": "true", "--nice": "1.5"}


def test_nothing_is_run_after_a_set_up_command_that_failed() -> None:
    found = destination("cedar.json", '{"setup": ["module load a # b", "", "source c"]}')
    assert found.setup == "module load a # b\n(exit $?) || exit\nsource c"


def test_a_file_is_found_higher_up_in_the_repository_but_not_outside(here: Path) -> None:
    (here.parent / "up.json").write_text('{"--mem": "1G"}')
    (here.parents[1] / "top.json").write_text("{}")
    (here.parents[2] / "outside.json").write_text("{}")
    assert read_destination("up.json").options == {"--mem": "1G"}
    assert read_destination("top.json").host == "top"
    with pytest.raises(TowlineError) as caught:
        read_destination("outside.json")
    assert "there is no file outside.json" in caught.value.text
    assert str(here.parents[1]) in caught.value.hint
    (here / "up.json").write_text('{"--mem": "2G"}')
    assert read_destination("up.json").options == {"--mem": "2G"}


def test_a_word_without_an_ending_is_a_cluster() -> None:
    Path("cedar.json").write_text(USUAL)
    found = read_destination("cedar")
    assert (found.cluster, found.host, found.options) == ("cedar", "", {})


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("c.json", "{", "c.json is not JSON"),
        ("c.json", "[]", "c.json holds no settings"),
        ("c.json", "[" * 100_000, "c.json"),
        ("c.json", '{"hots": "x"}', "`hots` is not a setting; did you mean `host`?"),
        ("c.json", '{"mem": "16G"}', "`mem` is not a setting"),
        ("c.json", '{"host": 5}', "`host` must be a text"),
        ("c.json", '{"host": ""}', "`host`: a machine's name is empty"),
        (
            "c.json",
            '{"host": "-oProxyCommand=x"}',
            "`host`: '-oProxyCommand",
        ),
        ("c.json", '{"host": "a; reboot"}', "cannot be a machine"),
        ("a b.json", "{}", "cannot be a machine"),
        ("c.json", '{"sbatch": ["--mem=1G"]}', "`sbatch` must be like"),
        ("c.json", '{"sbatch": {"--mem": ["1G"]}}', "the option --mem has no plain value"),
        ("c.json", '{"setup": 5}', "`setup` must be a text or a list of texts"),
        ("c.json", '{"setup": ["a", 5]}', "`setup` must be a text or a list of texts"),
        ("c.yaml", "host: [", "c.yaml is not YAML"),
        ("c.yaml", "", "c.yaml holds no settings"),
        ("c.toml", "host", "c.toml: "),
        ("c.toml", "sbatch = { time = 03:00:00 }", "the option time has no plain value"),
    ],
)
def test_every_mistake_in_a_file_is_told(file: str, text: str, told: str) -> None:
    said = complaint(file, text)
    assert told in said and said.startswith(file)


def test_yaml_runs_nothing() -> None:
    found = destination("c.yaml", "setup: !!python/object/apply:os.system ['touch hit']\n")
    assert found.setup == "touch hit"
    assert not Path("hit").exists()


@pytest.mark.parametrize("name", ["", "./cedar", "cedar.cfg/", "no/such.json", "none.json"])
def test_what_is_neither_file_nor_cluster_is_told(name: str) -> None:
    with pytest.raises(TowlineError) as caught:
        read_destination(name)
    assert caught.value.exit_code == 2


def test_files_that_are_no_text_are_told() -> None:
    Path("c.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TowlineError, match="not a text"):
        read_destination("c.json")


def test_options_of_the_command_line_are_read() -> None:
    assert read_options('{"--mem": "20G", "nice": 5}') == {"--mem": "20G", "nice": "5"}
    assert read_options("{}") == {}


@pytest.mark.parametrize("text", ["", "{--mem:", "--mem=20G", "[]", '"x"', '{"--mem": {}}'])
def test_options_of_the_command_line_that_are_no_json_are_told(text: str) -> None:
    with pytest.raises(TowlineError) as caught:
        read_options(text)
    assert caught.value.exit_code == 2
    assert caught.value.text.startswith("--sbatch_json")


def test_options_that_sbatch_is_not_told_by_others_are_refused_with_their_place() -> None:
    check_options({"--mem": "1G", "-p": "gpu", "ntasks": "1", "signal": "USR1@60"}, "c.json: ")
    for options in ({"--output": "x"}, {"-o": "x"}, {"--ntasks": "4"}, {"a b": "1"}, {"a": "1\n2"}):
        with pytest.raises(TowlineError) as caught:
            check_options(options, "c.json: ")
        assert caught.value.text.startswith("c.json: ")
        assert caught.value.exit_code == 2
