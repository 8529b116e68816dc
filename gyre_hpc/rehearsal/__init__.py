"""Rehearsals: a real harness against a real gateway and engines that say what a script prescribes, with disturbances.

base.py        what is said, what may happen in the middle of it, what must be true afterwards
scenarios.py   the rehearsed conversations
dialects.py    how each harness wants its tools called, and how it asks for a summary
script.py      prompt text -> what the model says next; stateless
cell.py, embedded_cell.py   processes that stand for cells
stage.py       gateway, cells and routing table of one scenario; director.py plays a scenario on it, verdict.py judges it
recording.py   what a harness sent and what was answered; replay.py sends it to a gateway again and compares every token
check.py       `gyre harness check`
"""
