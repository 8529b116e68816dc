"""What the gateway costs, beside LiteLLM and a bare pass-through: python -m benchmarks.gateway [--quick]."""
