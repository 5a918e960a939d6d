"""The fleet's sealing key, in the keys folder. It decrypts the data keys of secrets, which can then be sealed to more nodes."""

from __future__ import annotations

from ccm_agent.bus.access.credentials import new_root
from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.model.errors import NotFoundError
from ccm_ctl.fleet.keys.keys import Keys

NAME = "sealing"


class FleetSealingKeys(Keys):
    """The folder with the keys of a fleet that has secrets. Blocking."""

    def make_sealing(self) -> bool:
        """
        Create the sealing key if it is not in this folder. Returns whether it was created.

        Raises:
            InputError: The folder cannot be written.
        """
        if self._has_sealing:
            return False
        self.write_seed(NAME, new_root())
        return True

    def sealing_key(self) -> SigningKey:
        """
        Return the sealing key.

        Raises:
            NotFoundError: The key is not in this folder.
        """
        if not self._has_sealing:
            raise NotFoundError(
                f"{self.folder}: there is no sealing key `{NAME}.seed`; copy it from the folder in which `ccmctl secret init` "
                "created it, or pass that folder with --keys"
            )
        return SigningKey(self.seed(NAME))

    @property
    def _has_sealing(self) -> bool:
        return (self.folder / f"{NAME}.seed").exists()
