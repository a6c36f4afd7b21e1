"""The cables between the hosts: an outer network we are on, and an inner one only h1 reaches."""

from collections.abc import Iterable

from .slot import Slot, command

INNER = "in1"
GATEWAY = "h1"


def address(slot: Slot, name: str) -> str:
    return f"{slot.inner}.21" if name == INNER else f"{slot.outer}.{10 + int(name[1:])}"


def build(slot: Slot, names: Iterable[str]) -> None:
    outer, inner = slot.link("out"), slot.link("in")
    # Without `unreachable`, an address whose bridge is gone would leave by the default route.
    # quickack: else every login waits twice 40 ms for a delayed acknowledgement.
    _ip(
        f"link add {outer} type bridge",
        f"addr add {slot.outer}.1/24 dev {outer}",
        f"link set {outer} up",
        f"route change {slot.outer}.0/24 dev {outer} src {slot.outer}.1 quickack 1",
        f"link add {inner} type bridge",
        f"link set {inner} up",
        f"route replace unreachable {slot.outer}.0/24 metric 9999",
        f"route replace unreachable {slot.inner}.0/24 metric 9999",
    )
    for name in names:
        _add_host(slot, name)


def connect(slot: Slot, name: str) -> None:
    _ip(f"link set {slot.link(name)} up")


def disconnect(slot: Slot, name: str) -> None:
    _ip(f"link set {slot.link(name)} down")


def _add_host(slot: Slot, name: str) -> None:
    namespace = slot.link(name)
    bridge = slot.link("in" if name == INNER else "out")
    _ip(f"netns add {namespace}")
    _cable(namespace, slot.link(name), bridge, "eth0", address(slot, name))
    _ip("link set lo up", namespace=namespace)
    if name == GATEWAY:
        _cable(namespace, slot.link(f"{name}i"), slot.link("in"), "eth1", f"{slot.inner}.11")


def _cable(namespace: str, link: str, bridge: str, device: str, address: str) -> None:
    network = address.rpartition(".")[0]
    _ip(
        f"link add {link} type veth peer name {device} netns {namespace}",
        f"link set {link} master {bridge} up",
    )
    _ip(
        f"addr add {address}/24 dev {device}",
        f"link set {device} up",
        f"route change {network}.0/24 dev {device} quickack 1",
        namespace=namespace,
    )


def _ip(*lines: str, namespace: str = "") -> None:
    where = ("-n", namespace) if namespace else ()
    command("ip", *where, "-batch", "-", input="\n".join(lines) + "\n")
