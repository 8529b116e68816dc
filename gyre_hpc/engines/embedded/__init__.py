"""The engine that computes in this process with torch: paged prefix cache, continuous batching, chunked prefill.

engine.py    Engine and HTTP backend; asyncio side
worker.py    the one thread that computes
core.py      what the thread computes: admission, prefill, decode, retraction, weight updates
sequence.py  one call inside the core
page_table.py, page_store.py   prefix cache: keys and holders, numbers
sampling.py  counter-based draws
"""
