"""Every setting is described for users, with the value it has if left out."""

import re
from pathlib import Path

import msgspec
import pytest

from towline.config.check import OLDER_NAMES, check_text
from towline.config.settings import (
    CLUSTER_KINDS,
    CleanupSettings,
    Config,
    Defaults,
    EngineSettings,
    MachineEntry,
    SnapshotSettings,
)
from towline.errors import RequestError
from towline.model.grammar import FLAGS, KEYS, parse_request

DOCS = Path(__file__).parents[2] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text()
REQUESTS = (DOCS / "requests.md").read_text()


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", CONFIGURATION, re.S | re.M)
    assert found, f"no section {heading}"
    return found[1]


@pytest.mark.parametrize(
    ("heading", "structs"),
    [
        ("A pool of ssh machines", [CLUSTER_KINDS["machines"], MachineEntry]),
        (
            "Slurm, Grid Engine, a team's server",
            [CLUSTER_KINDS[kind] for kind in ("slurm", "gridengine", "server")],
        ),
        ("Defaults for jobs", [Defaults]),
        ("What travels with a job", [SnapshotSettings]),
        ("The Engine", [EngineSettings]),
        ("What is removed after a while", [CleanupSettings]),
    ],
)
def test_every_setting_has_a_row_and_every_row_a_setting(
    heading: str, structs: list[type[msgspec.Struct]]
) -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", section(heading), re.M))
    fields = {field.name for struct in structs for field in msgspec.structs.fields(struct)}
    fields -= set(OLDER_NAMES)
    assert rows - {"kind"} == fields


def test_numbers_in_the_table_are_the_real_ones() -> None:
    for struct, heading in (
        (EngineSettings, "The Engine"),
        (SnapshotSettings, "What travels with a job"),
        (CleanupSettings, "What is removed after a while"),
    ):
        rows = dict(re.findall(r"^\| `(\w+)` \|.*\| `(\d+)` \|$", section(heading), re.M))
        values = msgspec.to_builtins(struct())
        numbers = {
            name: str(value)
            for name, value in values.items()
            if value and not isinstance(value, list | bool)
        }
        assert rows == numbers


def test_top_level_settings_are_described() -> None:
    for field in msgspec.structs.fields(Config):
        assert re.search(rf"`{field.name}`|\[{field.name}[\].]", CONFIGURATION), field.name


def test_examples_are_valid() -> None:
    examples = re.findall(r"```toml\n(.*?)```", CONFIGURATION, re.S)
    assert len(examples) > 7
    for example in examples:
        check_text(example, "example")


def test_every_word_of_a_request_is_described() -> None:
    for word in (*KEYS, *FLAGS):
        assert re.search(rf"^\| `{word}\b", REQUESTS, re.M), word


def test_requests_in_the_text_mean_something() -> None:
    examples = re.findall(r"-r '([^']+)'", REQUESTS) + re.findall(r"^(\[\S+\]) ", REQUESTS, re.M)
    assert len(examples) > 10
    for example in examples:
        parse_request(example)


def test_mistake_in_the_text_is_shown_as_it_is() -> None:
    with pytest.raises(RequestError) as caught:
        parse_request("2:[gtx1070,,]")
    assert f"tow: {caught.value.text}\n" in REQUESTS
