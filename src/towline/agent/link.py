"""One open channel to the agent of one machine: ship it, greet it, ask it things."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from typing import Any, cast

from towline.agent.frames import Unpacker, pack, packed_header
from towline.agent.messages import (
    check_answer,
    check_event,
    check_stream,
    read_error,
    read_hello,
    readable,
)
from towline.agent.package import BOOT, HEADER, agent_package, boot_words
from towline.errors import AgentError, HostError, Nonsense, TowlineError, Unreachable, Unusable
from towline.hosts.base import Host
from towline.model.names import shown_cluster

log = logging.getLogger("towline")

#: A login shell may greet us first; more than this is not a greeting.
_MOST_NOISE = 1024 * 1024
_MARK = b"TOWLINE1 "

Answer = tuple[dict[str, Any], bytes]


class Link(asyncio.SubprocessProtocol):
    """The channel. `on_event` gets what the agent says unasked, `on_closed` why it ended."""

    def __init__(
        self,
        host: Host,
        on_event: Callable[[dict[str, Any], bytes], None],
        on_closed: Callable[[HostError], None],
    ) -> None:
        self.host = host
        self.hello: dict[str, Any] = {}
        self._on_event = on_event
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._process: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        #: What is to be sent as soon as there is somebody to send it to.
        self._unsent = bytearray()
        self._noise = bytearray()
        self._errors = bytearray()
        self._unpacker: Unpacker | None = None
        self._root = ""
        self._numbers = itertools.count(1)
        #: Number -> what was asked, and who waits for the answer.
        self._asked: dict[int, tuple[str, asyncio.Future[Answer]]] = {}
        #: Stream number -> who gets its frames (forward/tunnels.py).
        self.streams: dict[int, Callable[[dict[str, Any], bytes], None]] = {}
        self._may_write = asyncio.Event()
        self._may_write.set()
        #: When anything last came, be it a piece of something long.
        self.heard_at = 0.0
        self.closed = False
        self._why_closed: HostError = Unreachable(f"{self.name}: the connection is closed")
        #: It was closed for what the agent said, which no agent says.
        self.spoke_nonsense = False

    @classmethod
    async def open(
        cls,
        host: Host,
        root: str,
        on_event: Callable[[dict[str, Any], bytes], None],
        on_closed: Callable[[HostError], None],
    ) -> "Link":
        link = await cls.dial(host, root, on_event, on_closed)
        await link.greeted()
        return link

    @classmethod
    async def dial(
        cls,
        host: Host,
        root: str,
        on_event: Callable[[dict[str, Any], bytes], None],
        on_closed: Callable[[HostError], None],
        begin: Callable[["Link"], None] = lambda link: None,
    ) -> "Link":
        """Begin to connect. What `begin` asks goes with the command that starts the agent, and what
        is asked from then on is on its way behind it."""
        link = cls(host, on_event, on_closed)
        link._root = root
        try:
            begin(link)
            await host.prepare()
            await link._start()
        except BaseException as error:
            # Whoever asked something hears of it.
            uncalled = Unreachable(f"{link.name}: it was not called")
            link._lost(error if isinstance(error, HostError) else uncalled)
            raise
        return link

    async def _start(self) -> None:
        stage_two = agent_package().stage_two(self._root, self.host.login() is not None)
        words, rest = boot_words(stage_two, bytes(self._unsent))
        self._unsent[:] = rest
        argv = self.host.channel(BOOT, *words)
        try:
            # A session of its own: Ctrl-C on the terminal that started the Engine is not for us.
            await self._loop.subprocess_exec(lambda: self, *argv, start_new_session=True)
        except OSError as error:
            raise Unusable(
                f"cannot run {argv[0]}: {error}", hint="is OpenSSH's client installed?"
            ) from error

    async def greeted(self, timeout_s: float = 40.0) -> None:
        """Until the agent has said who it is."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready
        except TimeoutError:
            self.close()
            raise Unreachable(f"{self.name}: no answer within {timeout_s:.0f} s") from None
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """What people call the machine."""
        return shown_cluster(self.host.name)

    # --- asking ------------------------------------------------------------------------------

    async def ask(self, op: str, blob: bytes | memoryview = b"", **fields: Any) -> Answer:
        """One question, one answer: AgentError if the agent says no, HostError if it is gone."""
        answer = self.ask_soon(op, blob, **fields)
        await self.writable()
        return await answer

    def ask_soon(
        self, op: str, blob: bytes | memoryview = b"", **fields: Any
    ) -> "asyncio.Future[Answer]":
        """Send now, await later."""
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if self.closed:
            answer.set_exception(self._why_closed)
            return answer
        self._asked[number] = op, answer
        answer.add_done_callback(lambda done: self._answered(number, op, done))
        # A long blob is not copied once more.
        self._write(packed_header({"id": number, "op": op, **fields}, len(blob)))
        if blob:
            self._write(blob)
        return answer

    async def writable(self) -> None:
        """Until what was sent before is nearly out: what is urgent must not wait behind much."""
        if not self._may_write.is_set():
            await self._may_write.wait()

    def send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        if not self.closed:
            self._write(pack(header, blob))

    def _answered(self, number: int, op: str, done: "asyncio.Future[Answer]") -> None:
        if self._asked.pop(number, None) is not None and op == "read" and not self.closed:
            # Whoever waited has gone: the agent need not wait on their behalf.
            self.send({"id": next(self._numbers), "op": "cancel", "ids": [number]})

    def _write(self, data: bytes | memoryview) -> None:
        if self._stdin is None:
            self._unsent += data
        elif not self._stdin.is_closing():
            self._stdin.write(data)

    def close(self) -> None:
        if self._process is not None:
            if self._process.get_returncode() is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.terminate()
            if self.host.login() is None:
                self._hang_up(self._process)
            else:
                self._process.close()
        self._lost(Unreachable(f"{self.name}: the connection was closed"))

    @staticmethod
    def _hang_up(process: asyncio.SubprocessTransport) -> None:
        """Let an agent of this machine leave by itself: it may have to see to jobs before, and
        closing the process would kill it."""
        for fd in (0, 1, 2):
            if pipe := process.get_pipe_transport(fd):
                pipe.close()

    # --- what asyncio tells us ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's, so this cannot be asserted.
        self._process = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._process.get_pipe_transport(0))
        if self._unsent:
            self._write(bytes(self._unsent))
            self._unsent.clear()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.heard_at = time.time()
        if fd == 2:
            self._errors += data
            del self._errors[:-65536]
        elif self._unpacker is None:
            self._boot(data)
        else:
            self._unpack(data)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._may_write.set()

    def process_exited(self) -> None:
        # Both pipes may still hold what the process said last: connection_lost comes after them.
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        code = self._process.get_returncode() if self._process else None
        if self._process is not None:
            self._process.close()
        text = bytes(self._errors).decode(errors="replace")
        self._lost(self.host.failure(code, text))

    # --- the protocol ------------------------------------------------------------------------

    def _boot(self, data: bytes) -> None:
        """Skip what the login shell prints until the first stage over there speaks."""
        self._noise += data
        while self._unpacker is None:
            line, newline, rest = bytes(self._noise).partition(b"\n")
            if not newline:
                break
            self._noise = bytearray(rest)
            if line.startswith(_MARK):
                self._booted(line[len(_MARK) :].decode(errors="replace"), rest)
        if len(self._noise) > _MOST_NOISE:
            self._fail(Unusable(f"{self.name}: its login prints without end"))

    def _booted(self, word: str, rest: bytes) -> None:
        if word == "need":
            self._write(pack(HEADER, agent_package().zipped()))
        elif word == "have":
            self._unpacker = Unpacker()
            self._unpack(rest)
        elif word == "no-python":
            self._fail(self.host.failure(3, ""))
        elif word.startswith("old-python"):
            version = word.split()[-1]
            self._fail(
                Unusable(f"{self.name}: its python is {version}", hint="3.6 or newer is needed")
            )
        else:
            problem = word.removeprefix("error ")
            text = f"{self.name}: cannot put the agent into {self._root}: {problem}"
            hint = (
                "free some space there, or choose another place with `folder` in the configuration"
            )
            self._fail(Unusable(text, hint))

    def _unpack(self, data: bytes) -> None:
        assert self._unpacker is not None
        try:
            for header, blob in self._unpacker.feed(data):
                self._received(header, blob)
        except Exception as error:
            # Whatever it is, it came of what the machine said: it costs that machine's connection.
            self.fail_for_nonsense(error)

    def _received(self, header: dict[str, Any], blob: bytes) -> None:
        if not isinstance(header, dict):
            raise Nonsense("a header that is not an object")
        if "re" in header:
            self._hear_answer(header, blob)
        elif "stream" in header:
            check_stream(header)
            if receive := self.streams.get(header["stream"]):
                receive(header, blob)
        elif header.get("event") == "hello":
            self.hello = read_hello(header)
            if not self._ready.done():
                self._ready.set_result(None)
        else:
            check_event(header)
            self._on_event(header, blob)

    def _hear_answer(self, header: dict[str, Any], blob: bytes) -> None:
        number = header["re"]
        op, answer = self._asked.pop(number, ("", None)) if type(number) is int else ("", None)
        if answer is None or answer.done():
            return
        try:
            if header.get("error"):
                raise read_error(header["error"], self.name)
            check_answer(op, header)
        except Nonsense as error:
            answer.set_exception(Nonsense(f"{self.name}: {error.text}"))
        except AgentError as error:
            answer.set_exception(error)
        except Exception as error:
            # Whoever waits for it must hear that no answer will come.
            log.exception("the answer to `%s`", op)
            answer.set_exception(Nonsense(f"{self.name}: {error!r}"))
        else:
            answer.set_result((header, blob))

    def fail_for_nonsense(self, error: Exception) -> None:
        """Give the connection up for what came over it, in words."""
        known = isinstance(error, TowlineError | ValueError | RecursionError)
        text = readable(f"{self.name}: its agent does not speak as expected: {error}")
        log.warning("%s", text, exc_info=None if known else error)
        self.spoke_nonsense = True
        self._fail(Unusable(text, hint=f"`tow doctor` looks at {self.name}"))

    def _fail(self, error: HostError) -> None:
        self._lost(error)
        self.close()

    def _lost(self, error: HostError) -> None:
        if self.closed:
            return
        self.closed, self._why_closed = True, error
        self._may_write.set()
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()
        asked, self._asked = self._asked, {}
        for _, answer in asked.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()
        for receive in list(self.streams.values()):
            receive({"close": True}, b"")
        if self.hello:
            self._on_closed(error)
