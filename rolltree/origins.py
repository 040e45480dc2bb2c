"""Which requests come from elsewhere: a rebound name of a host, a page of another site. The viewer and the gateway ask.

A page in the same browser can send requests to a local port. So requests that name another host or come from another
origin are refused.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def foreign(headers: Mapping[str, str], local: bool, server: str) -> str:
    """Why a request is not for this server or not from its own pages; "" when it is. `local` is a server that only this
    machine reaches; names of headers are lower case, or the mapping does not mind."""
    host = headers.get("host", "")
    if local and not is_loopback(_parts(f"//{host}")[0]):
        return f"{server} answers on this machine only, not as {host[:200]!r}: open it as 127.0.0.1 or localhost"
    # Reading counts too: some libraries let every origin read what comes back.
    origin = headers.get("origin")
    if origin is not None and (not host or _parts(origin)[1] != host):
        return f"{server} takes requests from its own pages only, not from {origin[:200]!r}"
    return ""


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def same(given: str, token: str) -> bool:
    """Compare with a token in constant time; nothing given is never right."""
    return bool(given) and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def _parts(address: str) -> tuple[str, str]:
    """Host name and host with port of an address; empty where it is none."""
    try:
        split = urlsplit(address)
    except ValueError:
        return "", ""
    return split.hostname or "", split.netloc
