"""The call machine: one per gateway shard; owns routing, the recorded tokens, each call's life, delivery and facts."""

from gyre_hpc.machines.call.machine import GatewayMachine
from gyre_hpc.machines.call.settings import GatewaySettings

__all__ = ["GatewayMachine", "GatewaySettings"]
