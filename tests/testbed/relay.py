"""Lets a program that only knows TCP talk to a unix socket: `python relay.py SOCKET`.

It prints its port, and goes with whoever started it.
"""

import asyncio
import contextlib
import sys
from asyncio import StreamReader, StreamWriter


async def pump(source: StreamReader, target: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await source.read(65536):
            target.write(some)
            await target.drain()
    target.close()


async def serve(path: str) -> None:
    async def lead(reader: StreamReader, writer: StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
