"""What network.interface means on a machine."""

import socket
from types import SimpleNamespace

import psutil
import pytest

from gyre_hpc.addresses import address_here, addresses_by_card, card_of
from gyre_hpc.errors import UserError
from gyre_hpc.ports import listen


def pretend(monkeypatch: pytest.MonkeyPatch, **cards: list[str]) -> None:
    """Network cards of this name with these addresses; the kernel lets any of them be bound."""
    known = {name: [SimpleNamespace(family=socket.AF_INET, address=one) for one in given] for name, given in cards.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: known)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.3"])
def test_an_address_of_this_machine_is_itself(address: str):
    assert address_here(address) == address
    listen(address).close()


@pytest.mark.parametrize("address", ["192.0.2.77", "0.0.0.0", "::1", "224.0.0.1"])
def test_an_address_that_is_not_one_of_a_card_here_is_refused_with_what_there_is(address: str):
    with pytest.raises(UserError, match="127.0.0.1") as refused:
        address_here(address)
    assert refused.value.field == "network.interface" and refused.value.value == address


def test_a_card_a_network_and_nothing_of_that_name(monkeypatch: pytest.MonkeyPatch):
    pretend(monkeypatch, lo=["127.0.0.1"], eth0=["192.168.7.4"], ib0=["10.1.2.3", "10.1.2.4"], down=[])
    assert addresses_by_card() == {"lo": ["127.0.0.1"], "eth0": ["192.168.7.4"], "ib0": ["10.1.2.3", "10.1.2.4"]}
    assert address_here("ib0") == "10.1.2.3"
    assert address_here("10.1.0.0/16") == "10.1.2.3" and address_here("192.168.7.99/24") == "192.168.7.4"
    assert [card_of(address) for address in ("10.1.2.4", "127.0.0.1", "10.9.9.9")] == ["ib0", "", ""]
    for missing in ("ib1", "down", "172.16.0.0/12", "2001:db8::/32", "no such thing"):
        with pytest.raises(UserError, match="ib0 10.1.2.3 10.1.2.4"):
            address_here(missing)


def test_the_name_of_the_machine_is_its_address_unless_nobody_else_could_reach_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "n7")
    monkeypatch.setattr(socket, "gethostbyname", {"n7": "127.0.1.1"}.__getitem__)
    with pytest.raises(UserError, match="no other node can reach it"):
        address_here("hostname")

    def unknown(name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    with pytest.raises(UserError, match="n7, has no address"):
        address_here("hostname")
    own = next((known[0] for name, known in addresses_by_card().items() if name != "lo"), None)
    if own is not None:
        monkeypatch.setattr(socket, "gethostbyname", {"n7": own}.__getitem__)
        assert address_here("hostname") == own
