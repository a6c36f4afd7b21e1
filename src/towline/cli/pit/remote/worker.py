"""One process of a job of `pit`: runs the script with bash, and writes the time before every line.

What it prints is the ancestor's `worker.log`. The times are in UTC: whoever shows them knows where
they are looked at.
"""

import os
import select
import signal
import subprocess
import sys
import time

_PIECE = 65536
#: What a script left behind may hold its output open: then it is over all the same.
_LOOK_S = 0.2


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _stamp() -> bytes:
    return time.strftime("[%Y-%m-%d %H:%M:%S] ", time.gmtime()).encode()


def _say(text: str) -> None:
    _write(_stamp() + text.encode() + b"\n")


def _relay(process: "subprocess.Popen[bytes]") -> None:
    """Every line with its time; an unfinished one is finished at the end."""
    rest = b""
    assert process.stdout is not None
    source = process.stdout.fileno()
    while True:
        if not select.select([source], [], [], _LOOK_S)[0]:
            if process.poll() is not None:
                break
            continue
        piece = os.read(source, _PIECE)
        if not piece:
            break
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        stamp = _stamp()
        _write(b"".join(stamp + line + b"\n" for line in lines))
    if rest:
        _write(_stamp() + rest + b"\n")


def _environment(rank: str) -> "dict[str, str]":
    folder = os.getcwd()
    own = {"SRC_DIR": folder, "WORK_DIR": folder, "WORKER_INDEX": rank}
    own["JOB_NUMBER"] = os.environ.get("TOWLINE_JOB", "")
    return dict(os.environ, **own)


def _script(words: "list[str]") -> "list[str]":
    if words:
        return ["bash", "-c", words[0]]
    return ["bash", ".compute"] if os.path.exists(".compute") else ["true"]


def main(words: "list[str]") -> int:
    rank = os.environ.get("RANK", "0")
    stopped: "list[int]" = []
    _say("Worker %s started" % rank)
    process = subprocess.Popen(
        _script(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(rank),
    )

    def stop(number: int, frame: object) -> None:
        stopped.append(number)
        try:
            process.send_signal(number)
        except OSError:
            pass

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    _relay(process)
    code = process.wait()
    code = code if code >= 0 else 128 - code
    if not stopped:
        _say("Worker %s ended with exit code %d" % (rank, code))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
