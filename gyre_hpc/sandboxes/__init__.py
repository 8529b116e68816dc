"""Sandboxes behind one interface: none, bwrap; `auto` picks bwrap when its probe works."""
