"""Where calls go, beside a plain cache-aware router and round-robin: python -m benchmarks.routing [--quick].

record.py    a run's journal -> trace        workload.py  trace -> executions; the heavy-tailed one derived from it
cell.py      one engine: places, serial prefill, shared decode, prefix cache
routers.py   ours, cache-aware, round-robin  study.py     one workload at one load through one router, on the simulation kernel
"""
