"""A link to the provider, Postgres or Redis that can be cut: a proxy in a process of its own, that resets, swallows or
delays."""

import asyncio
import multiprocessing
import signal
import socket
import struct

MODES = ["pass", "reset_before", "reset_after", "black_hole", "delay"]
DELAY_S = 0.4


async def hard_close(writer):
    """RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def pump(reader, writer, mode, to_provider):
    """Bytes of one direction. reset_before: what the client sends never arrives; reset_after: it arrives, and what
    comes back is cut; black_hole: what comes back is swallowed."""
    try:
        while data := await reader.read(65536):
            name = MODES[mode.value]
            if name == "reset_before" and to_provider or name == "reset_after" and not to_provider:
                break
            if name == "black_hole" and not to_provider:
                continue
            if name == "delay":
                await asyncio.sleep(DELAY_S)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass


async def serve(listener, port, mode):
    async def one(reader, writer):
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await hard_close(writer)
            return
        ways = [asyncio.create_task(pump(reader, up_writer, mode, True)),
                asyncio.create_task(pump(up_reader, writer, mode, False))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        if MODES[mode.value].startswith("reset"):
            await hard_close(writer)
        else:
            writer.close()
        up_writer.close()

    server = await asyncio.start_server(one, sock=listener)
    async with server:
        await server.serve_forever()


def link_run(listener, port, mode):
    """Ends when its maker says so: Ctrl-C is for the maker, who has the fleet to end first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(serve(listener, port, mode))


class Link:
    def __init__(self, port):
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = listener.getsockname()[1]
        self.mode = multiprocessing.Value("i", 0)
        self.process = multiprocessing.Process(target=link_run, args=(listener, port, self.mode), daemon=True)
        self.process.start()
        listener.close()

    def set(self, name):
        self.mode.value = MODES.index(name)

    def end(self):
        self.process.terminate()
        self.process.join()
