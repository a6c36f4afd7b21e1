"""What is asked for, as typed: what is ambiguous or mistyped is asked back."""

from typing import Any

import pytest

from towline.config.settings import Config, MachinesCluster, SlurmCluster
from towline.errors import NotFound, UsageError
from towline.model.job import JobSpec
from towline.workspace.ask import JobAsk, spec_from
from towline.workspace.base import Places

CONFIG = Config(
    clusters={"local": MachinesCluster(["this"]), "cedar": SlurmCluster("me@cedar")},
    default_cluster="local",
)


def spec(**asked: Any) -> JobSpec:
    ask = JobAsk(argv=["true"], cwd="/", **asked)  # type: ignore[arg-type]
    return spec_from(ask, Places(CONFIG), "me")


def test_a_bare_number_for_a_time_limit_is_asked_back_on_a_slurm() -> None:
    with pytest.raises(UsageError, match="--time 60 could mean seconds or minutes") as asked:
        spec(cluster="cedar", time="60")
    assert "60m" in asked.value.hint and "60s" in asked.value.hint
    assert spec(cluster="cedar", time="60m").time_s == 3600
    assert spec(cluster="cedar", time="1:00:00").time_s == 3600
    assert spec(time="60").time_s == 60


@pytest.mark.parametrize(
    ("name", "hint"),
    [("cedr", "did you mean cedar?"), ("4", "--cpus 4"), ("zz", "clusters add zz")],
)
def test_a_cluster_that_is_not_there_is_answered_with_what_may_be_meant(
    name: str, hint: str
) -> None:
    with pytest.raises(NotFound, match=f"no cluster '{name}'") as asked:
        spec(cluster=name)
    assert hint in asked.value.hint


@pytest.mark.parametrize("title", ["60", "last", "all", "3-5"])
def test_a_title_that_means_other_jobs_is_refused(title: str) -> None:
    with pytest.raises(UsageError, match="means other jobs"):
        spec(title=title)
    assert spec(title=f"x{title}").title == f"x{title}"


@pytest.mark.parametrize("title", ["", "  "])
def test_an_empty_title_is_the_command(title: str) -> None:
    assert spec(title=title).title == spec().title != ""
