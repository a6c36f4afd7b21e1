"""Two machines for `make demo-server`, each an sshd in a network of its own.

Prints the ssh configuration that leads to them, and takes them along when it ends. Needs root.
"""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from testbed.hosts import Hosts, TestbedError

GPU = {"name": "GeForce GTX 1070", "memory_total": 8192}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        with Hosts(count=2, inner=False) as hosts:
            for name in ("h1", "h2"):
                hosts.set_gpus(name, [GPU, GPU])
            print(hosts.ssh_config, flush=True)
            signal.pause()
    except TestbedError as error:
        sys.exit(f"demo: {error}")


if __name__ == "__main__":
    main()
