"""Header blocks that a server forwards as they are, and that are not whole."""

from __future__ import annotations

MALFORMED = (
    b"N",
    b"NA",
    b"NATS/1.0",
    b"NATS/1.0\r",
    b"NATS/1.0\r\n",
    b"NATS/1.0\n\n",
    b"NATS/1.0\xff\xff",
    b"NATS/1.0 \xff\r\n\r\n",
    b"NATS/1.0 \xc3\r\n\r\n",
    b"NATS/1.0 404",
    b"NATS/1.0 40\r\n\r\n",
    b"NATS/1.0 \r\n\r\n",
    b"NATS/1.1\r\n\r\n",
    b" NATS/1.0\r\n\r\n",
    b"\r\n\r\n",
    b"NATS/1.0\r\nX: abZZ",
    b"NATS/1.0\r\nX: ab\r\n",
    b"NATS/1.0\r\n Ccm-Sent: 1\r\n\r\n",
    b"NATS/1.0\r\nCcm-Sent : 1\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\n: 1\r\n\r\n",
    b"NATS/1.0\r\nX: \xff\r\n\r\n",
    b"NATS/1.0\r\n\xc3\xa4: 1\r\n\r\n",
    b"NATS/1.0\r\nX: a\nb\r\n\r\n",
    b"NATS/1.0\r\nX: a\rb\r\n\r\n",
    b"NATS/1.0\r\nX: a\x00\r\n\r\n",
    b"NATS/1.0\r\nX: a\r\n b\r\n\r\n",
    b"NATS/1.0\r\nX: 1\r\n\r\nY: 2\r\n\r\n",
)
