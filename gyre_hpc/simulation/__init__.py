"""The deterministic simulation: the real machines of every process on one event queue, under a seeded schedule of faults.

scenario.py, draw.py   what happens in one seed: sizes, modes, faults; a value that prints and replays
kernel.py              event queue, clock, dice
process.py, network.py, disk.py
                       a process around a machine; what lies between processes; what outlives them
*_world.py             what the machines' actions do: cells, gateways, runner and agents, controller, supervisor
watch.py               what must hold, checked as it happens
run.py, simtest.py     one scenario; many seeds
"""
