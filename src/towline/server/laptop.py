"""The Engine of one user, as a background process: `python -m towline.server.laptop`.

`tow` starts it when it finds none. One lock file decides which of two that start at once stays; it
is taken before anything large is imported, so that the others cost next to nothing.
"""

import fcntl
import os
import signal
import sys

from towline.config.paths import Paths, home_paths, make_folders
from towline.errors import TowlineError


def main() -> int:
    # Whoever started us may block signals, as threads of a mounted folder do; jobs inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    paths = home_paths()
    try:
        make_folders(paths)
        lock = _take_lock(paths)
        if lock is None:
            return 0
        from towline.server.serving import run

        run(paths, lock)
    except TowlineError as error:
        print(f"tow: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def _take_lock(paths: Paths) -> int | None:
    """Held for as long as this process lives; None if another Engine has it."""
    lock = os.open(paths.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


if __name__ == "__main__":
    sys.exit(main())
