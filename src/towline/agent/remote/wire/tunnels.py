"""Connections to ports of this machine, carried over the one channel with flow control."""

import collections
import errno
import os
import socket

from ..box import entering
from ..loop import READ, WRITE
from ..refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..loop import Loop
    from ..run import relay
    from ..run.services import ServicePlaces
    from ..typed import Message, Refuse, Reply, Send

#: host -> addresses to try, in this order
LOCAL = {"127.0.0.1": ["127.0.0.1"], "localhost": ["127.0.0.1", "::1"], "::1": ["::1"]}
#: What either side may have sent without the other having said that it is through.
WINDOW = 1 << 20
#: So much where the way is long: who is held up asks for more.
MOST_WINDOW = 16 << 20
PIECE = 256 << 10


class Tunnel:
    def __init__(self, number: "Any", request: "Message", addresses: "Any") -> None:
        self.number = number
        self.sock: "socket.socket"
        self.fd = -1
        #: The request to answer once connected.
        self.dialling: "Any" = request
        self.addresses = addresses
        #: What is to be passed first where the port is another machine's.
        self.door: "relay.Door | None" = None
        #: The first process of the box of a job that has a network of its own.
        self.box: "int | None" = None
        self.to_socket: "collections.deque[Any]" = collections.deque()
        self.waiting = 0
        #: What the other side may have sent without our having passed it on.
        self.window = WINDOW
        self.unacknowledged = 0
        self.read_ended = False
        self.write_ending = False
        self.write_ended = False


class Tunnels:
    """`send` and `reply` go to the other side; `is_clogged` holds us back."""

    def __init__(
        self,
        loop: "Loop",
        send: "Send",
        reply: "Reply",
        refuse: "Refuse",
        is_clogged: "Callable[[], bool]",
        places: "ServicePlaces",
    ) -> None:
        self.loop = loop
        self.send = send
        self.reply = reply
        self.refuse = refuse
        self.is_clogged = is_clogged
        self.places = places
        self.tunnels: "dict[Any, Tunnel]" = {}

    def dial(self, request: "Message", _blob: bytes) -> None:
        if "service" in request:
            request["port"] = self.places.port_of(request)
        number, port = request.get("stream"), request.get("port")
        host = request.get("host", "127.0.0.1")
        if host not in LOCAL:
            raise Refusal("denied", "only ports of the machine itself, not of %.100r" % (host,))
        if not isinstance(port, int) or not 0 < port < 65536:
            raise Refusal("bad_request", "`port` is not a port")
        if not isinstance(number, (int, str)) or number in self.tunnels:
            raise Refusal("bad_request", "`stream` is missing or taken")
        tunnel = Tunnel(number, request, [(address, port) for address in LOCAL[host]])
        tunnel.box = self.places.box_of(request)
        tunnel.door = self.places.door_of(request)
        if tunnel.door is not None:
            tunnel.addresses = [tunnel.door.address]
        self.connect(tunnel)

    def connect(self, tunnel: "Tunnel") -> None:
        address = tunnel.addresses.pop(0)
        if tunnel.box is not None:
            self.connect_inside(tunnel, address)
            return
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        tunnel.sock = socket.socket(family, socket.SOCK_STREAM)
        tunnel.sock.setblocking(False)
        tunnel.fd = tunnel.sock.fileno()
        self.tunnels[tunnel.number] = tunnel
        problem = tunnel.sock.connect_ex(address)
        if problem in (0, errno.EINPROGRESS):
            self.update(tunnel)
        else:
            self.not_connected(tunnel, problem)

    def connect_inside(self, tunnel: "Tunnel", address: "Any") -> None:
        """To a port of a job that has a network of its own."""
        assert tunnel.box is not None
        try:
            tunnel.sock = entering.connected(tunnel.box, address)
        except OSError as problem:
            self.not_there(tunnel, problem.errno or errno.ECONNREFUSED)
            return
        tunnel.sock.setblocking(False)
        tunnel.fd = tunnel.sock.fileno()
        self.tunnels[tunnel.number] = tunnel
        self.update(tunnel)

    def not_connected(self, tunnel: "Tunnel", problem: int) -> None:
        self.drop(tunnel)
        self.not_there(tunnel, problem)

    def not_there(self, tunnel: "Tunnel", problem: int) -> None:
        if tunnel.addresses:
            self.connect(tunnel)
            return
        text = "port %d: %s" % (tunnel.dialling["port"], os.strerror(problem))
        self.refuse(tunnel.dialling.get("id"), Refusal("refused", text))

    def frame(self, header: "Message", blob: bytes) -> None:
        """What the other side says on a stream."""
        tunnel = self.tunnels.get(header.get("stream"))
        if tunnel is None:
            return  # closed here while this was under way
        if header.get("close"):
            self.drop(tunnel)
            return
        tunnel.unacknowledged -= header.get("credit", 0)
        if blob:
            tunnel.to_socket.append(blob)
            tunnel.waiting += len(blob)
        if header.get("eof"):
            tunnel.write_ending = True
        if tunnel.waiting > tunnel.window + PIECE:
            self.hang_up(tunnel)  # it does not keep to the window
            return
        if header.get("more"):
            self.widen(tunnel)
        self.write(tunnel)

    def widen(self, tunnel: "Tunnel") -> None:
        """Let more be on its way, if it is not the port here that holds it up."""
        more = min(tunnel.window, MOST_WINDOW - tunnel.window)
        if more and tunnel.waiting <= tunnel.window // 2:
            tunnel.window += more
            self.send({"stream": tunnel.number, "credit": more})

    def ready(self, tunnel: "Tunnel", events: int) -> None:
        if tunnel.dialling is not None:
            self.connected(tunnel, events)
            return
        if events & WRITE:
            self.write(tunnel)
        if events & READ and self.tunnels.get(tunnel.number) is tunnel:
            self.read(tunnel)

    def connected(self, tunnel: "Tunnel", events: int) -> None:
        problem = tunnel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            self.not_connected(tunnel, problem)
            return
        if tunnel.door is not None:
            self.pass_door(tunnel, events)
            return
        request, tunnel.dialling = tunnel.dialling, None
        self.reply(request.get("id"), {})
        self.write(tunnel)

    def pass_door(self, tunnel: "Tunnel", events: int) -> None:
        inside: "bool | None" = None
        try:
            assert tunnel.door is not None
            inside = tunnel.door.hear(tunnel.sock) if events & READ else None
        except BlockingIOError:
            pass
        except OSError:
            inside = False
        if inside is False:
            self.not_connected(tunnel, errno.ECONNREFUSED)
            return
        if inside:
            tunnel.door = None
            self.connected(tunnel, events)
            return
        # Connected, so there is nothing to wait for but words.
        self.loop.watch(tunnel.fd, READ, lambda events: self.ready(tunnel, events))

    def read(self, tunnel: "Tunnel") -> None:
        try:
            data = tunnel.sock.recv(min(PIECE, max(1, WINDOW - tunnel.unacknowledged)))
        except BlockingIOError:
            return
        except OSError:
            self.hang_up(tunnel)
            return
        if data:
            tunnel.unacknowledged += len(data)
            header = {"stream": tunnel.number}
            if tunnel.unacknowledged >= WINDOW:
                header["more"] = True
            self.send(header, data)
        else:
            tunnel.read_ended = True
            self.send({"stream": tunnel.number, "eof": True})
        self.update(tunnel)

    def write(self, tunnel: "Tunnel") -> None:
        written, data = 0, b""
        try:
            while tunnel.to_socket and tunnel.dialling is None:
                data = tunnel.to_socket.popleft()
                count = tunnel.sock.send(data)
                written += count
                if count < len(data):
                    tunnel.to_socket.appendleft(memoryview(data)[count:])
                    break
        except BlockingIOError:
            tunnel.to_socket.appendleft(data)
        except OSError:
            self.hang_up(tunnel)
            return
        tunnel.waiting -= written
        if written:
            self.send({"stream": tunnel.number, "credit": written})
        self.update(tunnel)

    def update(self, tunnel: "Tunnel") -> None:
        """Look for what can go on; close what is through in both directions."""
        if tunnel.write_ending and not tunnel.to_socket and not tunnel.write_ended:
            tunnel.write_ended = True
            try:
                tunnel.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        if tunnel.read_ended and tunnel.write_ended:
            self.hang_up(tunnel)
            return
        events = 0
        if tunnel.dialling is not None or tunnel.to_socket:
            events |= WRITE
        if tunnel.dialling is None and not tunnel.read_ended:
            if tunnel.unacknowledged < WINDOW and not self.is_clogged():
                events |= READ
        self.loop.watch(tunnel.fd, events, lambda events: self.ready(tunnel, events))

    def unclogged(self) -> None:
        for tunnel in list(self.tunnels.values()):
            self.update(tunnel)

    def hang_up(self, tunnel: "Tunnel") -> None:
        self.send({"stream": tunnel.number, "close": True})
        self.drop(tunnel)

    def drop(self, tunnel: "Tunnel") -> None:
        self.loop.unwatch(tunnel.fd)
        self.tunnels.pop(tunnel.number, None)
        tunnel.sock.close()
