"""Hydra groups as package data of `gyre_hpc.conf` (setup.cfg maps this folder there); holds no code."""
