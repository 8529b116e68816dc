"""The engine that computes in this process with torch: paged prefix cache, continuous batching, chunked prefill.

engine.py    Engine and HTTP backend; asyncio side
worker.py    the one thread that computes
jobs.py      everything that is asked of the core, as plain values
core.py      what the thread computes: admission, prefill, decode, retraction, weight updates
forward.py, fixed_forward.py   how it computes: steps as small as the work, or of one shape
sequence.py  one call inside the core
weights.py   the version served, and the one that is ready
follower.py, turns.py   other ranks of the same engine, and what passes between them
build.py     the core of a rank, of the configuration
page_table.py, page_store.py   prefix cache: keys and holders, numbers
sampling.py  counter-based draws
"""
