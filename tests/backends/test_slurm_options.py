"""From what a job needs to the words for sbatch."""

import pytest

from towline.backends.slurm.options import checked_signal, components, followed, sbatch_options
from towline.errors import UsageError
from towline.model.grammar import parse_request


def words(request: str, time_s: float = 0, cluster=(), given=()) -> list[set[str]]:  # type: ignore[no-untyped-def]
    found = sbatch_options(parse_request(request), time_s, dict(cluster), dict(given))
    return [set(part) for part in found]


def test_plain_job_asks_for_one_task() -> None:
    assert words("[]") == [{"--ntasks=1", "--cpus-per-task=1", "--nodes=1"}]


def test_processes_with_gpus_are_tasks_with_gres() -> None:
    assert words("2:[2:gtx1070,cpus=4]") == [
        {
            "--ntasks=2",
            "--cpus-per-task=4",
            "--nodes=2",
            "--ntasks-per-node=1",
            "--gres=gpu:gtx1070:2",
        }
    ]


def test_processes_on_common_nodes_ask_for_the_gpus_and_memory_of_all() -> None:
    (found,) = words("4:[gtx1070,mem=1G]", given={"nodes": "2"})
    assert {"--nodes=2", "--ntasks-per-node=2", "--gres=gpu:gtx1070:2", "--mem=2048M"} < found
    (found,) = words("4:[gtx1070]", given={"ntasks-per-node": "4"})
    assert {"--nodes=1", "--gres=gpu:gtx1070:4"} < found


def test_several_kinds_of_gpus_for_one_process() -> None:
    (found,) = words("[gtx1070,2:gtx1060,gpu]")
    gres = next(word for word in found if word.startswith("--gres="))
    assert set(gres.removeprefix("--gres=").split(",")) == {
        "gpu:gtx1070:1",
        "gpu:gtx1060:2",
        "gpu:1",
    }


def test_memory_is_by_cpu_where_slurm_spreads_the_processes() -> None:
    (found,) = words("3:[cpus=2,mem=1G]")
    assert "--mem-per-cpu=512M" in found
    assert not any(word.startswith(("--nodes", "--mem=")) for word in found)
    (single,) = words("[mem=10G]")
    assert "--mem=10240M" in single


def test_groups_of_different_shape_are_components_and_the_choosiest_is_first() -> None:
    gpus, plain = words("2:[],4:[gtx1070]")
    assert "--ntasks=4" in gpus
    assert "--ntasks=2" in plain
    parts = components(parse_request("2:[],4:[gtx1070]"), {})
    assert [(part.first, part.count) for part in parts] == [(2, 4), (0, 2)]


def test_neighbouring_groups_of_the_same_shape_are_one_component() -> None:
    assert words("2:[cpus=2],3:[cpus=2]") == words("5:[cpus=2]")


def test_time_is_written_as_slurm_reads_it() -> None:
    assert "--time=3:00:00" in words("[]", 3 * 3600)[0]
    assert "--time=0:01:31" in words("[]", 90.5)[0]
    assert "--time=48:00:00" in words("[]", 48 * 3600)[0]


def test_what_is_typed_wins_over_the_request_and_that_over_the_cluster() -> None:
    cluster = {"--mem": "16G", "time": "1:00:00", "account": "def-x", "requeue-free": False}
    (found,) = words("[]", 0, cluster)
    assert {"--mem=16G", "--time=1:00:00", "--account=def-x"} < found
    (found,) = words("[mem=1G]", 60, cluster)
    assert {"--mem=1024M", "--time=0:01:00"} < found
    (found,) = words("[mem=1G]", 60, cluster, {"mem": "2G", "t": "5", "exclusive": "true"})
    assert {"--mem=2G", "--time=5", "--exclusive"} < found


def test_an_option_is_left_out_with_false() -> None:
    (found,) = words("[]", 0, {"exclusive": True, "mem": "1G"}, {"exclusive": "false"})
    assert "--exclusive" not in found
    assert "--mem=1G" in found


def test_options_of_the_whole_job_are_said_once() -> None:
    first, second = words("1:[],1:[gpu]", given={"begin": "now+1hour", "partition": "gpu"})
    assert "--begin=now+1hour" in first
    assert "--begin=now+1hour" not in second
    assert "--partition=gpu" in first & second


def test_exclusive_processes_get_whole_nodes() -> None:
    assert "--exclusive" in words("[exclusive]")[0]


@pytest.mark.parametrize("request_text", ["[gpu,gpumem=4G]", "[gpu,gpuutil=0.5]"])
def test_shares_of_a_gpu_are_refused(request_text: str) -> None:
    with pytest.raises(UsageError, match="whole GPUs"):
        words(request_text)


@pytest.mark.parametrize(
    "name", ["output", "-o", "array", "--wrap", "comment", "signal", "n", "x y", "", "-", "a=b"]
)
def test_options_that_are_ours_or_none_at_all_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        words("[]", given={name: "1"})


def test_values_stay_one_word_whatever_is_in_them() -> None:
    (found,) = words("[]", given={"constraint": "a b; $(id) --wrap=x"})
    assert "--constraint=a b; $(id) --wrap=x" in found
    with pytest.raises(UsageError, match="more than one line"):
        words("[]", given={"constraint": "a\n#SBATCH --wrap=x"})


def test_signals_are_checked() -> None:
    assert checked_signal("SIGUSR1@120") == "USR1@120"
    assert checked_signal("12@60") == "12@60"
    for wrong in ("", "USR1@", "usr1@x", "B:USR1@10 --wrap=x", "FOO@1"):
        with pytest.raises(UsageError):
            checked_signal(wrong)


@pytest.mark.parametrize("given", [{"nodes": "2"}, {"N": "3"}, {"ntasks-per-node": "2"}])
def test_several_nodes_for_one_process_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="this job is one") as refused:
        words("[]", given=given)
    assert ":[]'" in refused.value.hint
    assert words("4:[]", given=given) and words("[]", given={"nodes": "1"})


def test_a_submission_follows_others_beside_what_the_user_makes_it_depend_on() -> None:
    words = followed(["sbatch", "--parsable", ":", "script"], ["7", "8_3"])
    assert words == ["sbatch", "--dependency=afterany:7:8_3", "--parsable", ":", "script"]
    own = followed(["sbatch", "--dependency=afterok:5", "script"], ["7"])
    assert own == ["sbatch", "--dependency=afterok:5,afterany:7", "script"]
    either = ["sbatch", "--dependency=afterok:5?afterok:6", "script"]
    assert followed(either, ["7"]) == either
