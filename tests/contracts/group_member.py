"""One member of a group in a process of its own, driven by a test: JSON lines in, JSON lines out."""

import json
import os
import signal
import sys

import numpy as np
import torch

from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport.c10d_groups import C10dGroups


def _work(groups: C10dGroups, order: dict) -> dict:
    if signal_name := order.get("signal_in_reduce"):
        # Once the group stands, before it gives its part: the others are inside the reduce.
        torch.distributed.ReduceOptions = lambda: os.kill(os.getpid(), signal.Signals[signal_name])  # type: ignore[assignment,misc]
    tensor = torch.from_numpy(np.full(order["size"], float(order["value"]), dtype=np.float32))
    try:
        total = groups.reduce(
            order["generation"], order["address"], order["nonce"], order["rank"], order["world"], tensor, order["deadline_s"]
        )
    except TransferFailed as error:
        return {"failed": str(error), "untouched": bool((tensor == order["value"]).all())}
    return {"sum": None if total is None else [float(total[0]), float(total[-1])], "untouched": bool((tensor == order["value"]).all())}


def main() -> None:
    torch.set_num_threads(1)
    groups = C10dGroups(host="127.0.0.1")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_work(groups, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
