"""The table of states, and that what the documents draw is what it says."""

from pathlib import Path

import pytest

from towline.core.lifecycle import HAPPENINGS, TRANSITIONS, InvalidTransition, diagram, next_state
from towline.model.job import FINAL, State

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"


def test_every_state_can_be_reached_from_new() -> None:
    reached = {State.NEW}
    for _ in State:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(State)


def test_every_unfinished_state_leads_to_an_end() -> None:
    ending = set(FINAL)
    for _ in State:
        ending |= {before for (before, _), after in TRANSITIONS.items() if after in ending}
    assert ending == set(State)


def test_an_ended_job_changes_by_being_retried_and_a_lost_one_by_being_found() -> None:
    for (before, happening), after in TRANSITIONS.items():
        if before in FINAL and (before, happening, after) != (State.LOST, "find", State.RUNNING):
            assert (happening, after) == ("requeue", State.QUEUED)


def test_only_known_things_happen() -> None:
    assert {happening for _, happening in TRANSITIONS} == set(HAPPENINGS)


def test_what_cannot_happen_is_a_bug_and_says_so() -> None:
    with pytest.raises(InvalidTransition, match="a job that is done cannot run"):
        next_state(State.DONE, "run")


def test_the_diagram_in_the_documents_is_the_table() -> None:
    assert diagram() in ARCHITECTURE.read_text()
