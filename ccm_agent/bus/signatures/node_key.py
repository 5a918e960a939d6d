"""
The key with which a node signs its events and its entries in buckets, and the root's certificate for the key.

Both are in the node's credentials file: the seed, which is also the node's identity on the broker, and the certificate in the
trust block. The file is read again after each connect, when new credentials take effect.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from ccm_agent.bus.chain import PLACE_DETAIL
from ccm_agent.bus.signatures.sealing import unseal
from ccm_agent.bus.signatures.signing import (
    CERTIFICATE_HEADER,
    SIGNATURE_HEADER,
    SignatureError,
    SignatureKind,
    SigningKey,
    signing_key_in_credentials,
)
from ccm_agent.bus.signatures.trust import trust_in_credentials, verify_certificate
from ccm_agent.model.errors import InputError, ProtocolError
from ccm_agent.model.wire import AnswerState

log = logging.getLogger(__name__)

FINAL_ANSWERS = (AnswerState.REFUSED, AnswerState.SUPERSEDED, AnswerState.EXPIRED, AnswerState.DONE)
"""Answers that end the node's part in a run. The node signs these answers."""


class NodeKey:
    """
    The key of one node.

    Attributes:
        public_key: The public nkey; "" if the node has no key and does not sign.
        certificate: A signature header of kind `node`; "" if the credentials contain none.
    """

    def __init__(self, path: str = "") -> None:
        """
        Store the path; `read` reads the file.

        Args:
            path: A credentials file, or a file with only a seed; "" if the node has neither.
        """
        self.public_key = ""
        self.certificate = ""
        self._path = path
        self._key: SigningKey | None = None

    def read(self, node: str) -> bool:
        """
        Read the file, and return whether the key or its certificate has changed. Blocking.

        If the file cannot be read, the key does not change; the connection reports the error.
        """
        if not self._path:
            return False
        try:
            text = Path(self._path).read_text(encoding="utf-8")
            key, trust = signing_key_in_credentials(text), trust_in_credentials(text, self._path)
        except (OSError, UnicodeDecodeError, InputError) as err:
            log.warning("the key that signs events cannot be read", extra={"reason": str(err)})
            return False
        before = self.public_key, self.certificate
        self._key = key
        self.public_key = key.public_key if key is not None else ""
        self.certificate = trust.certificate if trust is not None and key is not None else ""
        is_other = (self.public_key, self.certificate) != before
        if is_other and self.certificate and trust is not None:
            self._check(node, trust.root)
        return is_other

    def sign(self, subject: str, body: bytes, place: str, issued_ms: int) -> str:
        """Return a signature header for an event at a position in the node's chain; "" if the node has no key."""
        if self._key is None:
            return ""
        details = {PLACE_DETAIL: place}
        return self._key.sign(SignatureKind.EVENT, subject, body, issued_ms=issued_ms, details=details)

    def sign_state(
        self,
        subject: str,
        body: bytes,
        *,
        issued_ms: int,
        expires_ms: int = 0,
        carries_certificate: bool = False,
    ) -> dict[str, str]:
        """
        Return headers for an entry that the node stores about itself. Without a certificate, no headers are returned, because
        no reader could verify them.

        Args:
            subject, body: The subject of the entry, and its content.
            issued_ms: The time, in milliseconds since 1970.
            expires_ms: When the entry expires; 0: it does not expire.
            carries_certificate: Whether to include the certificate, for readers that do not read the node's record.
        """
        if self._key is None or not self.certificate:
            return {}
        signature = self._key.sign(
            SignatureKind.STATE, subject, body, issued_ms=issued_ms, expires_ms=expires_ms
        )
        headers = {SIGNATURE_HEADER: signature}
        return headers | ({CERTIFICATE_HEADER: self.certificate} if carries_certificate else {})

    def unseal(self, sealed: str) -> bytes:
        """
        Open a data key that was sealed to this node.

        Raises:
            ProtocolError: The node has no key, or the data key was sealed to another key.
        """
        if self._key is None:
            raise ProtocolError("this node has no credentials, so nothing can be sealed to it")
        return unseal(self._key, sealed)

    def _check(self, node: str, root: str) -> None:
        try:
            verify_certificate(self.certificate, node, self.public_key, root, now_ms=int(time.time() * 1000))
        except SignatureError as err:
            log.warning(
                "readers will reject this node's events: its certificate is not for its name and key",
                extra={"reason": str(err), "fix": f"new credentials: `ccmctl node add {node}`"},
            )
