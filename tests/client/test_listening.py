"""The events of a journal: each once and in order, wherever the stream is cut."""

import json
from itertools import islice
from typing import Any, cast

from towline.client.events import events
from towline.client.session import Session
from towline.client.transport import Gone


def message(seq: int) -> bytes:
    told = {"seq": seq, "at": 1.0, "kind": "running", "owner": "me", "job": 7, "batch": ""}
    told |= {"attempt": 1, "machine": "this", "data": {"state": "running"}, "text": "in words"}
    return b"id: %d\nevent: running\ndata: %s\n\n" % (seq, json.dumps(told).encode())


class Stream:
    """An answer that comes in these pieces, and is cut off behind them."""

    def __init__(self, *pieces: bytes, after: int) -> None:
        self.pieces = list(pieces)
        self.headers = {"towline-seq": str(after)}
        self.deadline = None

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> bytes:
        if not self.pieces:
            raise Gone("cut")
        return self.pieces.pop(0)


class Engine:
    def __init__(self, *streams: Stream) -> None:
        self.streams = list(streams)
        self.asked: list[str] = []

    def open(self, method: str, target: str) -> Stream:
        self.asked.append(target.partition("since=")[2].partition("&")[0])
        return self.streams.pop(0)


def seen(engine: Engine, count: int, **how: Any) -> list[int]:
    return [event.seq for event in islice(events(cast("Session", engine), **how), count)]


def test_a_listener_that_is_cut_off_before_the_first_event_misses_none() -> None:
    engine = Engine(Stream(b": towline\n\n", after=5), Stream(message(6), message(7), after=5))
    assert seen(engine, 2) == [6, 7]
    assert engine.asked == ["-1", "5"]


def test_it_goes_on_behind_the_last_event_that_was_seen_whole() -> None:
    half = message(7)[:40]
    engine = Engine(Stream(message(6) + half, after=5), Stream(message(7), after=6))
    assert seen(engine, 2, since=5) == [6, 7]
    assert engine.asked == ["5", "6"]


def test_events_are_read_in_whatever_pieces_they_come() -> None:
    text = b": towline\n\n" + message(1) + b": nothing new\n\n" + message(2)
    pieces = [text[place : place + 7] for place in range(0, len(text), 7)]
    assert seen(Engine(Stream(*pieces, after=0)), 2, since=0) == [1, 2]
