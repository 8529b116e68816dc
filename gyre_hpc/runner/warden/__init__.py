"""Warden: starts harnesses, one keeper process each, and leaves nothing of them behind. Standard library only.

One thread per process here, so that fork is safe; a keeper costs 1 ms, where starting an interpreter costs 20.
"""
