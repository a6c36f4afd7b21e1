"""A run in a Python of its own, which loads the application for it alone."""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile


def run(folder, number, plan, root, share):
    """Start it, wait for it, and end as it ends; what it said came of the run."""
    place, answer = tempfile.mkstemp()
    os.close(place)
    told = {"path": sys.path, "folder": folder, "plan": plan, "root": root, "share": share}
    program = (
        "import json, sys; told = json.load(sys.stdin); sys.path[:] = told['path'];"
        f"from {__name__} import main; main(told, {number}, {answer!r})"
    )
    process = subprocess.Popen([sys.executable, "-u", "-c", program], stdin=subprocess.PIPE)
    process.stdin.write(json.dumps(told).encode())
    process.stdin.close()
    code = process.wait()
    with open(answer, "rb") as file:
        data = file.read()
    os.unlink(answer)
    if data:
        return pickle.loads(data)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def main(told, number, answer):
    """In that Python."""
    from . import _fresh, _run

    sys.stdin = open(os.devnull)
    plan = told["plan"]
    try:
        application = _run.Application(told["folder"])
        made = _run.done(application, number, plan, told["root"], told["share"])
    except BaseException as error:
        made = _run.broken(error)
    _fresh.end()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with open(answer + ".part", "wb") as file:
        file.write(pickle.dumps(made))
    os.replace(answer + ".part", answer)
    os._exit(0)
