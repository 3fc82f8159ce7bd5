"""This machine's address, with interfaces and names as machines have them."""

import socket
from types import SimpleNamespace

import pytest

from flatout.ranks.hosts import addresses
from flatout.ranks.hosts.addresses import is_here, own_address, split_endpoint


def test_the_own_address_is_the_one_that_the_meeting_place_sees():
    assert own_address("127.0.0.1:29400") == ("127.0.0.1", "lo")
    assert own_address("no.such.host.invalid:29400") == own_address("nonsense") == ("", "")


@pytest.fixture
def debian(monkeypatch):
    """A machine whose own name stands for 127.0.1.1, with one interface, and others that do not count."""
    names = {"here": "127.0.1.1", "localhost": "127.0.0.1", "there": "10.1.1.2"}
    way = {"127.0.1.1": "127.0.0.1", "10.1.1.2": "10.1.1.1", "192.0.2.1": "", "127.0.0.1": "127.0.0.1"}

    def getaddrinfo(host, port, **more):
        return [(socket.AF_INET, 0, 0, "", (names.get(host, host), port))]

    def interfaces():
        found = {"lo": "127.0.0.1", "eth0": "10.1.1.1", "down0": "10.9.9.9"}
        return {name: [SimpleNamespace(family=socket.AF_INET, address=one)] for name, one in found.items()}

    up = {name: SimpleNamespace(isup=name != "down0") for name in interfaces()}
    monkeypatch.setattr(addresses.socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(addresses.socket, "gethostname", lambda: "here")
    monkeypatch.setattr(addresses.psutil, "net_if_addrs", interfaces)
    monkeypatch.setattr(addresses.psutil, "net_if_stats", lambda: up)
    monkeypatch.setattr(addresses, "_source", lambda kind, there: way[there[0]])
    return way


def test_a_name_for_the_machine_itself_does_not_hide_it_from_others(debian):
    assert own_address("here:1") == ("10.1.1.1", "eth0")
    assert own_address("there:1") == ("10.1.1.1", "eth0")
    assert own_address("localhost:1") == ("127.0.0.1", "lo")


def test_the_way_to_other_networks_comes_first(debian):
    debian["192.0.2.1"] = "10.9.9.9"
    assert own_address("here:1") == ("10.9.9.9", "down0")


@pytest.mark.parametrize(
    ("endpoint", "here"),
    [("here:1", True), ("10.1.1.1:1", True), ("there:1", False), ("10.1.1.2:1", False), ("localhost:1", True),
     ("nonsense", False)],
)  # fmt: skip
def test_a_meeting_place_is_known_by_any_address_of_this_machine(debian, endpoint, here):
    assert is_here(endpoint) is here


def test_brackets_of_an_address_are_no_part_of_it():
    assert split_endpoint("[fe80::1]:29400") == ("fe80::1", 29400)
    assert split_endpoint("host:1") == ("host", 1)
