"""Counts visits in Redis: a small application, to be replaced by yours."""

import os
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMANDS = {"/": b"INCR visits\r\n", "/health": b"PING\r\n"}


class Page(BaseHTTPRequestHandler):
    """Answers with what the database replies."""

    def do_GET(self) -> None:
        """Send one command to the database."""
        command = COMMANDS.get(self.path)
        if command is None:
            self.send_error(404)
            return
        with socket.socket(socket.AF_UNIX) as database:
            database.settimeout(5)
            database.connect(os.environ["DATABASE"])
            database.sendall(command)
            reply = database.makefile("rb").readline().lstrip(b":+")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(reply)


ThreadingHTTPServer(("", int(os.environ["PORT"])), Page).serve_forever()
