"""Removes the hosts of a slot when their owner is gone, however it ended.

Its standard input is a pipe whose other end only the owner has: it ends when the owner does.
"""

import os
import sys

from .slot import Slot, clean


def main() -> None:
    slot = Slot(number=int(sys.argv[1]), lock=int(sys.argv[2]))
    while os.read(0, 1):
        pass
    clean(slot)
    slot.release()


if __name__ == "__main__":
    main()
