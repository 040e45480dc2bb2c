"""An address of a cluster where nobody listens is refused before Ray tries it for a minute."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from rolltree.cluster import rays
from rolltree.cluster.errors import ClusterError
from rolltree.cluster.rays import joined, parse_where


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Ray was asked to join."""
    told: list[Any] = []
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **how: told.append(how), shutdown=lambda: None)
    monkeypatch.setattr(rays, "need_ray", lambda: ray)
    return told


@pytest.mark.parametrize(("address", "says"), [
    ("nope.invalid:1", "the cluster at nope.invalid:1 cannot be joined"),
    ("ray://nope.invalid:10001", "cannot be joined"),
    ("127.0.0.1:1", "Connection refused"),
    ("[::1]:1", "cannot be joined"),
    ("127.0.0.1:head", "names no port"),
    ("127.0.0.1:99999", "names no port"),
])  # fmt: skip
def test_nobody_there(asked: list[Any], address: str, says: str) -> None:
    with pytest.raises(ClusterError, match=says) as told, joined(parse_where(address)):
        pass
    assert "\n" not in str(told.value)
    assert not asked


def test_somebody_there_is_ray_s_to_join(asked: list[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with joined(parse_where(address)):
            assert [how["address"] for how in asked] == [address]
    with joined(parse_where("auto")), joined(parse_where("local:2")):
        assert [how["address"] for how in asked[1:]] == ["auto", "local"]
