"""Which of this machine's addresses `network.interface` means here.

Every node of a run has an address of its own, while the configuration is one: it names a network card, a network, or the node's own
name, and each supervisor finds the address for its node once. IPv4 only, as all that listens here is. Loopback is not the answer to a
network or a name of the node's own: other nodes could not reach it.
"""

import ipaddress
import socket

from gyre_hpc.errors import UserError

FIELD = "network.interface"
OWN_NAME = "hostname"


def address_here(interface: str) -> str:
    """The IPv4 address to listen on: of an address itself, a card's name (`ib0`), a network (`10.1.0.0/16`), or `hostname`.

    Raises UserError with what there is, where it means no address of this machine.
    """
    if interface == OWN_NAME:
        return _own_name()
    try:
        network = ipaddress.ip_network(interface, strict=False)
    except ValueError:
        return _of_card(interface)
    return _in_network(interface, network) if "/" in interface else _itself(interface)


def addresses_by_card() -> dict[str, list[str]]:
    """Name of each network card of this machine -> its IPv4 addresses; cards without one are left out."""
    import psutil  # takes longer than everything else here, and an address needs none of it

    cards = {name: [one.address for one in known if one.family == socket.AF_INET] for name, known in psutil.net_if_addrs().items()}
    return {name: known for name, known in cards.items() if known}


def card_of(address: str) -> str:
    """Name of the network card that has this address; empty for loopback, and for one that is not listed."""
    if ipaddress.ip_address(address).is_loopback:
        return ""
    return next((name for name, known in addresses_by_card().items() if address in known), "")


def _itself(address: str) -> str:
    """The kernel knows whether it is ours: every address of 127.0.0.0/8 is, though one alone is listed."""
    parsed = ipaddress.ip_address(address)
    if parsed.version != 4 or parsed.is_unspecified or parsed.is_multicast:
        raise _refused(address, "is not the IPv4 address of a network card")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise _refused(address, f"cannot listen there ({error.strerror})") from error
    return address


def _of_card(name: str) -> str:
    cards = addresses_by_card()
    if name not in cards:
        raise _refused(name, "no network card of that name has an IPv4 address here")
    return cards[name][0]


def _in_network(given: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
    for known in addresses_by_card().values():
        for address in known:
            if ipaddress.ip_address(address) in network:
                return address
    raise _refused(given, "this machine has no address in that network")


def _own_name() -> str:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        raise _refused(OWN_NAME, f"the name of this machine, {name}, has no address ({error})") from error
    if ipaddress.ip_address(address).is_loopback:
        raise _refused(OWN_NAME, f"the name of this machine, {name}, is {address}, where no other node can reach it")
    return _itself(address)


def _refused(value: str, why: str) -> UserError:
    there = ", ".join(f"{name} {' '.join(known)}" for name, known in addresses_by_card().items())
    return UserError(
        FIELD, value, f"{why}; name an address, a network card, a network or hostname; on {socket.gethostname()} there is: {there}"
    )
