"""Begins where functions are called: with the right Python, or with the reason why there is none.

Any Python may read this file, so that an old one can say what is wrong with it.
"""

import importlib
import os
import shutil
import sys

MISMATCH = """\
towline: the functions come from Python {wanted}, which this Python {ours} ({path}) cannot load
  have Python {wanted} on this machine's PATH, activate one with setup=, or name it with python=
"""


def main(job, wanted, theirs, number):
    """Go on with the module that does the job, in a Python of the wanted version."""
    ours = "%d.%d" % sys.version_info[:2]
    tried = int(os.environ.pop("TOWLINE_PYTHONS_TRIED", "0"))
    others = [theirs, shutil.which("python" + wanted) if ours != wanted else None]
    for place in range(tried, len(others)):
        python = others[place]
        if python and os.access(python, os.X_OK) and python != sys.executable:
            os.environ["TOWLINE_PYTHONS_TRIED"] = str(place + 1)
            os.execv(python, [python, "-u"] + sys.argv)
    if ours != wanted:
        sys.stderr.write(MISMATCH.format(wanted=wanted, ours=ours, path=sys.executable))
        sys.exit(3)
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    # Modules of the folder that travelled are found as they are at home.
    with open(os.path.join(folder, "paths"), "rb") as file:
        sys.path[1:1] = [
            os.path.join(os.getcwd(), os.fsdecode(p)) for p in file.read().split(b"\0")
        ]
    importlib.import_module(job).main(folder, int(number))


if __name__ == "__main__":
    main(*sys.argv[1:5])
