"""What a gateway shard goes through when it is started again within an attempt: python -m benchmarks.scale.shard_restart RUN. Prints JSON."""

import json
import resource
import sys
import time

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.gateway.journal_writer import each_of_journal
from gyre_hpc.machines.base import Restarted
from gyre_hpc.machines.call import GatewayMachine, GatewaySettings
from gyre_hpc.protocol.supervision import Register


def main() -> None:
    folder = RunFolder(sys.argv[1])
    register = Register(process="gateway-0", incarnation=2, url="", pid=0)
    settings = GatewaySettings.of(load_config(folder.config), register=register, clock_offset_s=0.0, stop_ids=())
    begun = time.perf_counter()
    GatewayMachine(settings).handle(0.0, Restarted(each_of_journal(folder.journal, "gateway-0", 1)))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.perf_counter() - begun, "peak_mib": peak_mib}))


if __name__ == "__main__":
    main()
