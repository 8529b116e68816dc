"""Harness protocols: one file per protocol, pure translation. `base.py` says what a protocol must be able to do."""
