"""Typed configuration of a run; torch-free. `schema.py` holds the dataclasses, conf/ their values."""
