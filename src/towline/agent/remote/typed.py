"""Names for what the agent's functions take and give. Only type checkers read this file."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from .refusal import Refusal

Result = TypeVar("Result")

#: What travels as JSON: a request, an answer, an event; a job's specification, and how it ended.
Message = dict[str, Any]
Spec = dict[str, Any]
Ending = dict[str, Any]
#: A message with the bytes behind it; None: what came was no message.
Frame = tuple[Any, bytes]
#: Of a snapshot: path, kind, and the content's hash or a link's target.
Entry = Any
Environ = dict[bytes, bytes]
#: What `wait4` said of children that ended: pid -> status and usage.
Reaped = dict[int, tuple[int, Any]]
#: The pid of a command, and when it started in ticks since boot.
Command = tuple[int, int]
#: Of contents in a pack: hash and size; the pack's path, offset and size.
Contents = list[Any]
PackPlace = tuple[str, int, int]
#: Answers a request with a message; or returns nothing, and replies later.
Operation = Callable[[Message, bytes], Any]
Reply = Callable[..., None]
Send = Callable[..., None]
Refuse = Callable[[Any, Refusal], None]
Done = Callable[[Message], Any]
Told = Callable[[str], Any]
#: Called between two steps of something long; raises what is to end it.
Pause = Callable[[], Any]
#: When, in which order, and what: see `Loop.later`.
Timer = list[Any]
#: Something long that pauses after each step, and has a result at its end.
Steps = Generator[None, None, Result]
