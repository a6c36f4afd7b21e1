"""The Engine of one user, as a background process: `python -m towline.server.laptop`.

`tow` starts it when it finds none, with the folder and the cluster of the job that it is for. One
lock file decides which of two that start at once stays; it is taken before anything large is
imported, so that the others cost next to nothing.
"""

import gc
import signal
import sys

from towline.config.lock import take
from towline.config.paths import home_paths, make_folders
from towline.errors import TowlineError


def main() -> int:
    # Whoever started us may block signals, as threads of a mounted folder do; jobs inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    paths = home_paths()
    try:
        make_folders(paths)
        lock = take(paths)
        if lock is None:
            return 0
        # All that is loaded now stays: looking for garbage in it takes a tenth of the time.
        gc.disable()
        from towline.server.serving import First, run

        run(paths, lock, First(*sys.argv[1:]) if len(sys.argv) == 3 else None)
    except TowlineError as error:
        print(f"tow: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
