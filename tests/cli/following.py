"""A job that is followed on a terminal: what the Engine tells of it, and what a person does."""

import signal
import subprocess
import threading

from cli.stub import Frame, Stub, answer, job, stream
from testbed.terminal import Terminal
from testbed.tow import Tow

END = {"end": job(state="done")}


def held(stub: Stub, *frames: Frame) -> None:
    """A job that goes on until it is stopped."""
    stub.on("POST /v1/run", stream({"job": job()}, *frames, hold=threading.Event()))


def stops_when_told(stub: Stub) -> None:
    stub.on("POST /v1/jobs/stop", answer({"jobs": [job(state="stopping")]}))
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, {"end": job(state="stopped")}))


class OnTerminal(Terminal):
    """`tow` with a terminal for stdin and stderr, while its output goes elsewhere."""

    def __init__(self, tow: Tow, *words: str) -> None:
        super().__init__(tow, *words, stdout=subprocess.PIPE)

    def waits_for_output(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def interrupts(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def is_asked(self, question: str) -> None:
        """Press Ctrl-C once there is output, and wait for what is asked then."""
        self.waits_for_output()
        self.interrupts()
        self.sees(question)
