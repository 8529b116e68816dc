"""Inference engines behind one interface: embedded (our decoder on CPU or GPU), timed (waits), scripted (canned agents)."""
