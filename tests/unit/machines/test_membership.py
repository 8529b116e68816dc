"""How processes stay in the directory: often until they are known, and each newer directory is confirmed."""

from dataclasses import fields

from gyre_hpc.machines.base import Effect, Send, SetTimer
from gyre_hpc.machines.membership import PERIOD_S, SETTLED_S, TIMER, Membership
from gyre_hpc.machines.supervision import SupervisionSettings
from gyre_hpc.protocol.supervision import Directory, Entry, Register

OWN = Register("cell-0", 2, "http://cell-0", 7)
KNOWN = Entry("cell-0", 2, "http://cell-0")


def parts(effects: list[Effect]) -> tuple[Register, float]:
    send, timer = effects
    assert isinstance(send, Send) and isinstance(send.message, Register) and isinstance(timer, SetTimer) and timer.key == TIMER
    return send.message, timer.after_s


def test_a_registration_names_the_newest_directory_that_came():
    member = Membership(OWN)
    assert parts(member.beat()) == (OWN, PERIOD_S)
    for number in (4, 3):
        assert not member.heard(Directory(number, (KNOWN,)))
    register, after_s = parts(member.beat())
    assert (register.directory, after_s) == (4, PERIOD_S), "its registrations are its heartbeat"


def test_a_registration_has_most_of_the_silence_that_is_allowed_to_arrive_and_not_more():
    (send, _), default = Membership(OWN).beat(), {one.name: one.default for one in fields(SupervisionSettings)}
    allowed = default["silent_ticks"] * default["tick_s"]
    assert isinstance(send, Send) and allowed / 2 < send.deadline_s < allowed


def test_a_cell_that_is_known_registers_rarely_and_confirms_a_newer_directory_soon():
    member = Membership(OWN, settled_s=SETTLED_S)
    assert not member.heard(Directory(1, (Entry("cell-0", 1, "http://cell-0"),))), "that was the one before"
    assert parts(member.beat())[1] == PERIOD_S
    assert member.heard(Directory(2, (KNOWN,))) == [SetTimer(TIMER, PERIOD_S)]
    assert parts(member.beat())[1] == SETTLED_S
    assert not member.heard(Directory(2, (KNOWN,)))
    assert not member.heard(Directory(3, (Entry("cell-0", 2),))), "forgotten: it registers as soon as it would have"
    assert parts(member.beat())[1] == PERIOD_S
