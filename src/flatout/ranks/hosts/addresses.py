"""This machine's address as other machines see it, and whether a meeting place is on this machine.

The machine's name is no help: on many it stands for an address that no other machine can reach (127.0.1.1), and on some
for none.
"""

import contextlib
import ipaddress
import socket

import psutil

__all__ = ["is_here", "own_address", "split_endpoint"]

_ELSEWHERE = ("192.0.2.1", 9)  # an address for examples: asks for the way that leaves this machine


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Return the host and the port of `host:port`, where the host may stand in brackets."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def own_address(endpoint: str) -> tuple[str, str]:
    """Return this machine's address on the way to `endpoint`, and its interface; empty where it cannot be told."""
    try:
        host, port = split_endpoint(endpoint)
        kind, _, _, _, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except (OSError, ValueError):
        return "", ""
    address = _source(kind, there)
    if address and _is_loopback(address) and not _is_loopback(host):  # this machine is `host`, by a name for itself
        address = _seen_from_outside() or address
    names = (name for name, has in psutil.net_if_addrs().items() if address in {one.address for one in has})
    return address, next(names, "")


def is_here(endpoint: str) -> bool:
    """Return whether `endpoint` is on this machine."""
    try:
        host, port = split_endpoint(endpoint)
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, ValueError):
        return False
    ours = {one.address.partition("%")[0] for has in psutil.net_if_addrs().values() for one in has}
    return host == socket.gethostname() or any(one in ours or _is_loopback(one) for one in found)


def _source(kind: int, there: tuple[object, ...]) -> str:
    """Return from which address this machine sends to another one; no packet is sent."""
    with contextlib.suppress(OSError), socket.socket(kind, socket.SOCK_DGRAM) as way:
        way.connect(there)
        return str(way.getsockname()[0])
    return ""


def _seen_from_outside() -> str:
    """Return the address of the way to other networks, else the only one that is none of the machine's inside."""
    address = _source(socket.AF_INET, _ELSEWHERE)
    if address:
        return address
    active = psutil.net_if_stats()
    found = {
        one.address
        for name, has in psutil.net_if_addrs().items()
        for one in has
        if one.family == socket.AF_INET and not _is_loopback(one.address) and name in active and active[name].isup
    }
    return min(found) if len(found) == 1 else ""


def _is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
