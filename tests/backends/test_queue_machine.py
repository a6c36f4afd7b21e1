"""Whatever is killed around a queue, each attempt runs once, and none is lost.

`TOWLINE_QUEUE_STEPS=200000 pytest tests/backends/test_queue_machine.py` is the long form.
"""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from backends.queue_engine import Engine, Row
from backends.queue_world import LAG_S, End, World
from towline.backends.queue.state import Place

STEPS = int(os.environ.get("TOWLINE_QUEUE_STEPS", "5000"))
_STEPS_EACH = 60
#: Nobody wants the first two to end before they are through: nothing excuses their loss.
TOUGH, AS_TOUGH, STOPPED, FRAGILE, AFTER_TOUGH, AFTER_FRAGILE = KEYS = (
    "e-1-1", "e-2-1", "e-3-1", "e-4-1", "e-5-1", "e-6-1",
)  # fmt: skip
#: The queue may begin these at any time: it is up to their nodes that they wait.
AFTER = {AFTER_TOUGH: TOUGH, AFTER_FRAGILE: FRAGILE}
#: Rounds of ten seconds after which all must be over, once nothing is killed any more.
_LONGEST = 400


#: What goes on by itself, the more often the more often it is here.
LIFE = (
    "time passes", "time passes", "submit", "submit as array", "submit as pack",
    "command works", "command works",
    "command works and is killed", "command is killed", "queue is full", "ask", "judge",
    "ask and judge", "ask and judge", "hear", "write", "start", "start", "run", "run", "run",
    "run with lag", "connect", "connect", "restart", "controller writes",
)  # fmt: skip
FAULTS = (
    "engine", "connection", "connection", "controller", "controller", "node", "requeue", "fragile",
    "packer", "cancel", "stop", "stop at once", "accounts",
)  # fmt: skip
PAUSES_S = (0.5, 3.0, 10.0, 30.0, 100.0)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(KEYS, frozenset({FRAGILE}), AFTER)
        self.engine = Engine(self.world)
        self.unexplained = 0
        for key in KEYS:
            self.engine.want(key)

    @rule(
        happenings=st.lists(
            st.tuples(st.sampled_from(LIFE), st.integers(0, 11)), min_size=1, max_size=6
        )
    )
    def life_goes_on(self, happenings: list[tuple[str, int]]) -> None:
        for happening, which in happenings:
            name, _, how = happening.partition(" ")
            getattr(self, f"_{name}")(which, how)

    @rule(fault=st.sampled_from(FAULTS), which=st.integers(0, 11))
    def something_fails(self, fault: str, which: int) -> None:
        name, _, how = fault.partition(" ")
        getattr(self, f"_{name}_fails")(which, how)

    # --- what goes on by itself --------------------------------------------------------------

    def _time(self, which: int, how: str) -> None:
        self.world.now += PAUSES_S[which % len(PAUSES_S)]
        self.world.forget()

    def _submit(self, which: int, how: str) -> None:
        if self.engine.is_connected:
            self.engine.submit(how)

    def _command(self, which: int, how: str) -> None:
        if commands := self.engine.commands:
            self.engine.answer(commands[which % len(commands)], how)

    def _queue(self, which: int, how: str) -> None:
        self._command(which, "full")

    def _ask(self, which: int, how: str) -> None:
        if self.engine.is_connected:
            self.engine.ask()
            if how:
                self.engine.judge()

    def _judge(self, which: int, how: str) -> None:
        if self.engine.is_connected and self.engine.listed:
            self.engine.judge()

    def _hear(self, which: int, how: str) -> None:
        if self.engine.is_connected:
            self.engine.hear(KEYS[which % len(KEYS)])

    def _write(self, which: int, how: str) -> None:
        self.engine.write()

    def _start(self, which: int, how: str) -> None:
        waiting = [e for e in self.world.entries.values() if not (e.end or e.is_running)]
        if waiting and self.world.is_up:
            self.world.start(waiting[which % len(waiting)])

    def _run(self, which: int, how: str) -> None:
        if self.world.runs:
            run = self.world.runs[which % len(self.world.runs)]
            self.world.go_on(run, LAG_S if how else 0.0)

    def _connect(self, which: int, how: str) -> None:
        if not self.engine.is_connected:
            self.engine.connect()

    def _restart(self, which: int, how: str) -> None:
        if not self.world.is_up:
            self.world.restart_controller()

    def _controller(self, which: int, how: str) -> None:
        self.world.save()

    # --- what is killed, and what people do --------------------------------------------------

    def _engine_fails(self, which: int, how: str) -> None:
        self.engine.kill()

    def _connection_fails(self, which: int, how: str) -> None:
        self.engine.disconnect()

    def _controller_fails(self, which: int, how: str) -> None:
        if self.world.is_up:
            self.world.kill_controller()

    def _node_fails(self, which: int, how: str) -> None:
        """Before anything of the attempt began."""
        alone = [run for run in self.world.runs if run.entry.key]
        if runs := [run for run in alone if not self.world.folders[run.entry.key].claim]:
            self.world.kill_run(runs[which % len(runs)], End.NODE_FAIL)

    def _packer_fails(self, which: int, how: str) -> None:
        """It is killed, or its node is, between two lines or while one runs that may be lost."""
        packs = [run for run in self.world.runs if not run.entry.key]
        if runs := [run for run in packs if run.line in ("", FRAGILE)]:
            # What the queue itself cannot explain is tried a few times only.
            self.unexplained += which % 2
            end = End.COMPLETED if which % 2 and self.unexplained <= 2 else End.NODE_FAIL
            self.world.kill_run(runs[which % len(runs)], end)

    def _requeue_fails(self, which: int, how: str) -> None:
        """A node fails, and the queue starts the entry again by itself."""
        if self.world.runs and self.world.is_up:
            self.world.requeue(self.world.runs[which % len(self.world.runs)])

    def _fragile_fails(self, which: int, how: str) -> None:
        if runs := [run for run in self.world.runs if run.entry.key == FRAGILE]:
            run = runs[which % len(runs)]
            self.world.kill_run(run, End.TIMEOUT if run.began and which % 2 else End.NODE_FAIL)

    def _cancel_fails(self, which: int, how: str) -> None:
        """Somebody cancels an entry, without us."""
        entries = [e for e in self.world.entries.values() if e.lines == (FRAGILE,) and not e.end]
        if entries and self.world.is_up:
            self.world.cancelled.add(FRAGILE)
            self.world.cancel(entries[which % len(entries)].id)

    def _stop_fails(self, which: int, how: str) -> None:
        if self.engine.rows[STOPPED].ending or self.engine.written[STOPPED].ending:
            return
        self.engine.stop_asked(STOPPED)
        if how and self.engine.is_connected and STOPPED in self.engine.attempts:
            self.engine.stop([STOPPED])

    def _accounts_fails(self, which: int, how: str) -> None:
        """The site keeps accounts from now on."""
        self.world.has_accounts = True

    # --- what must hold ----------------------------------------------------------------------

    @invariant()
    def none_runs_twice(self) -> None:
        for key, entries in self.world.ran.items():
            assert len(entries) <= 1, f"{key} was run by {entries}"
            row = self.engine.written[key]
            if row.ending and row.ending.cause == "void":
                assert not entries, f"{key} never started, it was said, but {entries} ran it"

    @invariant()
    def what_follows_another_runs_after_it_and_only_if_that_ended_well(self) -> None:
        for key, ahead in AFTER.items():
            end = self.world.folders[ahead].exit
            assert not self.world.ran[key] or (end is not None and end.ok), (key, end)

    @invariant()
    def only_what_the_queue_has_is_known_by_a_number(self) -> None:
        unknown = (Place.NOT_SENT, Place.ASKING, Place.UNANSWERED)
        for attempt in self.engine.attempts.values():
            assert not (attempt.id and attempt.place in unknown), attempt

    def teardown(self) -> None:
        """Nothing is killed any more: now each must come to its end, and to the right one."""
        self.world.restart_controller()
        for _ in range(_LONGEST):
            if all(row.ending for row in self.engine.written.values()):
                break
            self.calm_round()
        for key, row in self.engine.written.items():
            self.check(key, row)

    def calm_round(self) -> None:
        world, engine = self.world, self.engine
        if not engine.is_connected:
            engine.connect()
        world.now += 10.0
        world.forget()
        if engine.may_go():
            engine.submit()
        for command in list(engine.commands):
            engine.answer(command, "works")
        for entry in [e for e in world.entries.values() if not (e.end or e.is_running)]:
            world.start(entry)
        for run in list(world.runs):
            world.go_on(run)
        engine.write()
        engine.ask()
        engine.judge()
        engine.write()

    def check(self, key: str, row: Row) -> None:
        told, folder = row.ending, self.world.folders[key]
        assert told is not None, f"{key} never ended: {self.engine.attempts.get(key)}, {folder}"
        if key == AFTER_FRAGILE:
            ahead = self.engine.written[FRAGILE].ending
            assert ahead is not None and ahead.ok == told.ok == bool(self.world.ran[key]), (
                f"{key} is {told} after {ahead}: {folder}"
            )
        elif key in (TOUGH, AS_TOUGH, AFTER_TOUGH):
            assert told.code == 0 and self.world.ran[key], (
                f"{key} is {told} for no reason: {folder}"
            )
        elif folder.exit is not None and not folder.is_ours:
            same = (told.code, told.signal) == (folder.exit.code, folder.exit.signal)
            assert same, f"{key} ended by {folder.exit}, and was said to end by {told}"
        elif key == STOPPED:
            assert row.stop and not told.code, f"{key} is {told}: {folder}"
        else:
            excused = self.world.cancelled | self.world.killed
            assert key in excused, f"{key} is {told} for no reason: {folder}"


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=max(1, STEPS // _STEPS_EACH),
    stateful_step_count=_STEPS_EACH,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestQueueMachine.pytestmark = [pytest.mark.timeout(60 + STEPS / 100)]  # type: ignore[attr-defined]
