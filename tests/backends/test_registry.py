"""Every kind of cluster is named in one place, and whole there."""

import msgspec
import pytest

from towline.backends.registry import KINDS, QUEUES, queue_from, queue_kind
from towline.config.settings import CLUSTER_KINDS, QueueCluster
from towline.errors import UsageError
from towline.model import names as kinds
from towline.model.names import ad_hoc_queue, is_ad_hoc_queue, shown_cluster


def test_people_and_programs_call_the_same_kinds_the_same() -> None:
    titles = {name: kind.dialect.title for name, kind in QUEUES.items()}
    assert titles == kinds.QUEUES
    assert all(kind.dialect.kind == name for name, kind in QUEUES.items())


def test_every_kind_can_be_configured() -> None:
    for name, kind in QUEUES.items():
        assert CLUSTER_KINDS[name] is kind.settings
        assert issubclass(kind.settings, QueueCluster) and kind.settings().kind == name
    assert set(KINDS) <= set(CLUSTER_KINDS)


def test_a_remembered_cluster_is_of_the_kind_that_it_was() -> None:
    for kind in QUEUES.values():
        cluster = kind.settings(host="me@login", folder="/scratch")
        assert queue_from(msgspec.json.encode(cluster)) == cluster


def test_one_that_nobody_configured_is_known_by_its_access_node() -> None:
    for kind in QUEUES:
        name = ad_hoc_queue(kind, "me@login")
        assert is_ad_hoc_queue(name) and shown_cluster(name) == "me@login"
    for name in ("slurm", "lab", "ad-hoc:1f", "me@login:22"):
        assert not is_ad_hoc_queue(name)
    assert shown_cluster("lab") == "lab"


def test_a_kind_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        queue_kind("condor")
    assert "slurm" in refused.value.hint
