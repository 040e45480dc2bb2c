"""What the gateway refuses, with the status a client is told."""

from __future__ import annotations

from rolltree.errors import RolltreeError


class GatewayError(RolltreeError):
    """A request that cannot be served: one sentence for the client, and the status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
