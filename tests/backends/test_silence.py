"""When a machine counts as silent: only by dials that were made while somebody was awake."""

from hypothesis import given
from hypothesis import strategies as st

from towline.backends.machines.silence import FEWEST_DIALS, TICK_S, AwakeClock, Silence

LIMIT_S = 20.0


class Listener:
    """A clock that is looked at as the Engine does, and a machine that is dialled."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.clock = AwakeClock(self.now)
        self.silence = Silence()

    def awake(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + TICK_S)
            self.clock.tick(self.now)

    def asleep(self, seconds: float) -> None:
        self.now += seconds

    def fail(self, counts: bool = True) -> None:
        self.silence.failed(self.clock.tick(self.now), counts)

    @property
    def too_long(self) -> bool:
        return self.silence.exceeds(LIMIT_S)


def test_a_machine_that_does_not_answer_for_long_enough_is_silent() -> None:
    listener = Listener()
    listener.fail()
    for _ in range(3):
        assert not listener.too_long
        listener.awake(7)
        listener.fail()
    assert listener.too_long


def test_a_night_of_sleep_is_no_silence_and_the_first_dial_after_it_says_nothing() -> None:
    listener = Listener()
    listener.fail()
    listener.awake(3)
    listener.fail()
    listener.asleep(30 * 3600)
    listener.fail()
    listener.awake(1)
    listener.fail()
    assert not listener.too_long


def test_without_a_network_of_our_own_nobody_else_is_silent() -> None:
    listener = Listener()
    listener.fail(counts=False)
    for _ in range(1000):
        listener.awake(60)
        listener.fail(counts=False)
    assert not listener.too_long


def test_an_answer_ends_the_silence() -> None:
    listener = Listener()
    for _ in range(5):
        listener.fail()
        listener.awake(10)
        listener.fail()
        listener.silence.answered()
    assert not listener.too_long


def test_one_failed_dial_is_not_enough_however_short_the_limit_is() -> None:
    silence = Silence()
    silence.failed(0.0, True)
    for dial in range(1, FEWEST_DIALS + 1):
        assert not silence.exceeds(0.001)
        silence.failed(float(dial), True)
    assert silence.exceeds(0.001)


Step = tuple[str, float]
steps = st.lists(
    st.tuples(
        st.sampled_from(["awake", "asleep", "fail", "offline", "answer"]), st.floats(0.0, 50.0)
    )
)


@given(steps)
def test_silence_is_never_more_than_what_was_listened_to(taken: list[Step]) -> None:
    """Whatever happens in whatever order: only time awake since the last answer can count."""
    listener = Listener()
    awake_s = 0.0
    naps = 0
    broken = False
    for what, seconds in taken:
        if what == "awake":
            listener.awake(seconds)
            awake_s += seconds if broken else 0.0
        elif what == "asleep":
            listener.asleep(seconds)
            naps += broken
        elif what == "answer":
            listener.silence.answered()
            awake_s, naps, broken = 0.0, 0, False
        else:
            listener.fail(counts=what == "fail")
            broken = True
        # Of each nap a moment may count, since it is noticed only at the next look at the clock.
        assert listener.silence.for_s <= awake_s + naps * 2 * TICK_S + 1e-6
        if listener.too_long:
            assert listener.silence.dials >= FEWEST_DIALS
