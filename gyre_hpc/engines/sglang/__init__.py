"""SGLang as the engine of a cell: a server in an environment and processes of its own, behind our HTTP surface.

parts.py          what the files of this room are to one another
environment.py    its Python environment: where it is, how it is made
model_folder.py   what it is told of the model: a Hugging Face folder without weights
site.py           where and as what it runs
flags.py          how it is started
keeper.py         the process that holds a server: outlives the cell's leader for a while, never the run
guard.py          the process between keeper and server: ends the whole tree
predecessor.py, process_table.py, probe.py   of these: what was left before; which are it; is it ours
shared_memory.py, bounded_log.py   what a server leaves; what it prints
server.py         the leader's side of a keeper: start or adopt, wait, end
keeper_link.py, keeper_wire.py, server_folder.py   their connection, what is said on it, what lies between them
client.py         its HTTP API
weights.py        weights into it, by a process group or a folder
attempts.py       calls of ours as requests to it, one after the other; sent.py: one call
prefill.py, guests.py   KV from another server: the side that decodes, the side that computes prompts
pace.py           how fast it decodes
watch.py          is it well, when it is silent
memory.py         what it holds of the devices
engine.py         the Engine
build.py          puts these together for a cell
"""
