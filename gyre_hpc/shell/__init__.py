"""Carries out effects of machines: mail, timers, durable log, actions, lifetime. Every process main is built on Host.

Shells only translate. Nothing here retries, times out or chooses; the one file with timers is timers.py.
"""
