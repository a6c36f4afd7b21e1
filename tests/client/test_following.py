"""A followed job: nothing of it is told twice or left out, whatever breaks in between."""

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import unquote

import pytest

from towline.client.follow import Following
from towline.client.session import ApiError, Session, refused
from towline.client.transport import Gone
from towline.errors import EngineError, NotFound, TowlineError

END = {"end": {"id": 7, "state": "done"}}
Frame = tuple[dict[str, Any], bytes]


def job(attempt: int = 1) -> Frame:
    return {"job": {"id": 7, "state": "running", "attempt": attempt}}, b""


def out(offset: int, text: bytes, **which: int) -> Frame:
    return {"stream": "out", "offset": offset, **which}, text


class Engine:
    """Answers each request with the next script of frames; an error in one is raised there."""

    def __init__(self, *scripts: list[Frame | Exception]) -> None:
        self.scripts = list(scripts)
        self.asked: list[str] = []

    def frames(self, method: str, target: str, *_: Any, **__: Any) -> Iterator[Frame]:
        self.asked.append(f"{method} {target}")
        for frame in self.scripts.pop(0):
            if isinstance(frame, Exception):
                raise frame
            yield frame

    def check_key_known(self) -> None:
        self.asked.append("is the key known?")


def following(engine: Engine, **how: Any) -> Following:
    return Following(cast("Session", engine), **({"job_id": 7} | how))


def told(follower: Following, acknowledge: bool = True) -> bytes:
    text = b""
    for header, blob in follower.frames():
        if "stream" in header:
            text += blob
            if acknowledge:
                follower.told(header, blob)
    return text


def test_after_a_cut_only_what_is_new_is_told() -> None:
    engine = Engine(
        [job(), out(0, b"one\ntw"), Gone("cut")], [job(), out(4, b"two\nthree\n"), (END, b"")]
    )
    assert told(following(engine)) == b"one\ntwo\nthree\n"
    assert 'from={"0.0.out": 6}' in unquote(engine.asked[1])


def test_output_that_nobody_acknowledged_is_told_again() -> None:
    engine = Engine([job(), out(0, b"one\n"), (END, b"")], [job(), out(0, b"one\n"), (END, b"")])
    follower = following(engine)
    assert told(follower, acknowledge=False) == told(follower) == b"one\n"


def test_processes_are_told_apart() -> None:
    first, second = out(0, b"a", process=0), out(0, b"b", process=1)
    engine = Engine([job(), first, second, Gone("cut")], [job(), first, second, (END, b"")])
    assert told(following(engine)) == b"ab"


def test_the_next_attempt_is_told_from_its_beginning() -> None:
    engine = Engine(
        [job(1), out(0, b"first\n"), Gone("cut")],
        [job(2)],
        [job(2), out(0, b"again\n"), (END, b"")],
    )
    assert told(following(engine)) == b"first\nagain\n"
    assert "from=" in engine.asked[1] and "from=" not in engine.asked[2]


def test_an_attempt_that_begins_while_it_is_followed_is_told_too() -> None:
    frames = [job(1), out(0, b"first\n"), job(2), out(0, b"again\n"), (END, b"")]
    assert told(following(Engine(list(frames)))) == b"first\nagain\n"


def test_a_submission_whose_answer_was_lost_is_sent_again_only_if_its_key_is_known() -> None:
    engine = Engine([Gone("cut")], [job(), (END, b"")])
    assert told(following(engine, job_id=None, ask={}, key="k")) == b""
    assert engine.asked == ["POST /v1/run", "is the key known?", "POST /v1/run"]


def test_a_refusal_ends_it_at_once_also_after_a_cut() -> None:
    damaged = refused({"code": "damaged", "text": "cannot be read"}, 1)
    assert isinstance(damaged, EngineError)
    with pytest.raises(ApiError, match="cannot be read"):
        told(following(Engine([job(), Gone("cut")], [damaged])))


def test_an_engine_that_cannot_be_started_just_after_it_died_is_tried_again() -> None:
    engine = Engine([job(), Gone("cut")], [EngineError("does not start")], [job(), (END, b"")])
    assert told(following(engine)) == b""
    with pytest.raises(EngineError, match="does not start"):
        told(following(Engine([EngineError("does not start")])))


@pytest.mark.parametrize(
    ("code", "kind"), [("not_found", NotFound), ("version", TowlineError), ("error", TowlineError)]
)
def test_a_refusal_is_of_the_class_that_it_had_in_the_engine(
    code: str, kind: type[TowlineError]
) -> None:
    error = refused({"code": code, "text": "no", "hint": "do that"}, 2)
    assert isinstance(error, kind) and isinstance(error, ApiError)
    assert (error.code, error.exit_code, str(error)) == (code, 2, "no\n  do that")


def test_a_refusal_for_want_of_trust_says_which_file() -> None:
    wanted = {"file": "/p/towline.toml", "digest": "d", "settings": {}}
    error = refused({"code": "not_trusted", "text": "no", "trust": wanted}, 2)
    assert error.trust == wanted and error.facts() == {"trust": wanted}
