"""What the gateway refuses, with the status a client is told."""

from __future__ import annotations

from rolltree.errors import RolltreeError


class GatewayError(RolltreeError):
    """A request that cannot be served: one sentence for the client, and the status of the answer.

    `param` names the field that is at fault and `code` the kind of fault, in the words of OpenAI's errors.
    """

    def __init__(self, message: str, status: int = 400, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
