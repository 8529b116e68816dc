"""A run seen and ordered from outside, through its folder alone: a login node may reach no compute node. HTTP where it can be had."""
