"""A rank of an engine that another rank leads: does the jobs of each turn, then steps, until told that it was the last.

It computes what the leader computes, on its part of the weights, and throws away what is meant for clients. Whatever fails
here ends it: the leader's next collective then fails by its deadline, and `failure` says why.
"""

import logging
import threading
from collections.abc import Callable

import torch

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.base import PageBytes
from gyre_hpc.engines.embedded.build import new_core, new_forward
from gyre_hpc.engines.embedded.jobs import EachRank, Job, do
from gyre_hpc.engines.embedded.turns import FollowerTurns, Turn
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.tensor_ranks import TensorRanks
from gyre_hpc.protocol.identity import Version

_LOG = logging.getLogger(__name__)


class EngineFollower:
    """snapshot: whole weights of a version; raises what a leader may read (KeyError, TransferFailed)."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        model: Qwen3Config,
        ranks: TensorRanks,
        snapshot: Callable[[Version], Parameters],
        decode: Decode | None = None,
    ) -> None:
        self._ranks, self._turns = ranks, FollowerTurns(ranks)
        self.core = new_core(config, new_forward(config, model, ranks), snapshot, decode=decode)
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engine-compute", daemon=True)

    def start(self) -> None:
        """Follow in a thread, which ends with the process at the latest."""
        self._thread.start()

    def page_bytes(self) -> PageBytes | None:
        """This rank's KV pages; None while the engine sleeps."""
        memory = self.core.memory
        return memory.page_bytes if memory else None

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)
        try:
            while self._follow(self._turns.hear()):
                pass
        except BaseException as error:  # noqa: BLE001 - thread edge: told to the leader by whoever owns this
            _LOG.exception("rank %d of the engine failed", self._ranks.rank)
            self.failure = error

    def _follow(self, turn: Turn) -> bool:
        """One turn. False after the last."""
        if turn.trace != self.core.trace:
            raise RuntimeError(f"rank {self._ranks.rank} sampled other tokens than its leader")
        for job in turn.jobs:
            self._do(job)
        if not turn.is_last and self.core.has_work:
            self.core.step()
        return not turn.is_last

    def _do(self, job: Job) -> None:
        if not isinstance(job, EachRank):
            do(self.core, job)
            return
        self._turns.take()
        try:
            result, _ = do(self.core, job)
        except Exception as error:  # noqa: BLE001 - it rises on the leader
            self._turns.answer(None, f"{type(error).__name__}: {error}")
        else:
            self._turns.answer(result)
