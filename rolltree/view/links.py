"""Addresses of pages: everything a page shows follows from its URL, so that a link is a place."""

from __future__ import annotations

from urllib.parse import urlencode

from rolltree.analysis.source import ViewError


def link(page: str, /, **where: str | int | None) -> str:
    """The address of a page; places that are None are left out."""
    known = {name: value for name, value in where.items() if value is not None and value != ""}
    return f"/{page}" + (f"?{urlencode(known)}" if known else "")


def whole(name: str, text: str | None) -> int | None:
    """A whole number out of an address; None where there is none."""
    if text is None or text == "":
        return None
    try:
        return int(text)
    except ValueError:
        raise ViewError(f"{name}={text!r} in the address is not a whole number; follow a link instead") from None
