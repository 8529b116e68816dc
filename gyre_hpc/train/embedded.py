"""The embedded trainer: our Qwen3 decoder on the CPU, one flat float32 sum, AdamW on the core.

Invariants (each has a test):
  - the sum is sum_t weight_t * d l_t over accumulated micro-batches, whatever their division over micro-batches and ranks;
  - a micro-batch is in the sum wholly or not at all;
  - snapshots share no memory with the trainer's parameters; log-probs are at the sampling temperature.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gyre_hpc.clock import monotonic_s
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.models.checkpoint import load_checkpoint
from gyre_hpc.models.parameters import num_parameters, parameter_shapes, random_parameters
from gyre_hpc.models.qwen3_config import Qwen3Config, from_model_config
from gyre_hpc.models.tensor_ranks import TensorRanks
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.protocol.to_batch import MicroBatchFacts, RankMemory
from gyre_hpc.train import checkpoint, warm_start
from gyre_hpc.train.adamw import AdamW, clip_scale
from gyre_hpc.train.base import Trainer
from gyre_hpc.train.cell_ranks import CellRanks, DataParallel
from gyre_hpc.train.flat import FlatParameters
from gyre_hpc.train.gradient import Measured, gradient
from gyre_hpc.train.losses import KNOWN
from gyre_hpc.train.memory import measure
from gyre_hpc.train.targets import check, length, pack
from gyre_hpc.train.tensor_parallel_ranks import TensorParallel
from gyre_hpc.transport.base import SnapshotStore

COLLECTIVE_DEADLINE_S = 300.0
"""Between two ranks of which one reads its checkpoint faster than the other."""


class EmbeddedTrainer(Trainer):
    """Kind `embedded`. `Sum` is a tensor [num_parameters] in `dtype` (float32; float64 for golden tests).

    vocab_size: of the tokenizer. With world > 1 torch.distributed's default WORLD must be the cell's own; its ranks hold the
    model together unless cluster.tensor_parallel is 1.
    """

    def __init__(
        self,
        config: Config,
        *,
        vocab_size: int,
        store: SnapshotStore,
        rank: int = 0,
        world: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if config.algo.temperature <= 0:
            raise UserError("algo.temperature", config.algo.temperature, "make it positive: greedy samples have no log-probs to train on")
        self._config = config
        self._model = from_model_config(config.model, vocab_size)
        self._store = store
        self._ranks = _ranks_of(config, self._model, rank, world)
        self._dtype = dtype
        self._parameters: FlatParameters | None = None
        self._version: Version | None = None
        self._optimizer: AdamW | None = None
        self._sum: torch.Tensor | None = None

    def wake(self, version: Version) -> RankMemory:
        if self._version != version:
            with self._store.hold(version) as tensors:
                # Moments belong to the parameters they were made with.
                self._optimizer = self._version = None
                self._room().take(self._ranks.own(tensors))
            self._version = version
        self._sum = torch.zeros_like(self._room().flat)
        return measure(self._ranks.rank)

    def sleep(self) -> RankMemory:
        """Drops the sum; without an optimizer (a satellite) the parameters too, which the store has."""
        self._sum = None
        if self._optimizer is None:
            self._parameters = self._version = None
        return measure(self._ranks.rank)

    def zero(self) -> None:
        self._awake_sum().zero_()

    def accumulate(self, micro_batch: MicroBatch) -> MicroBatchFacts:
        """See base. Raises ValueError, on every rank and with the sum unchanged, also when the loss is not finite."""
        started = monotonic_s()
        total = self._awake_sum()
        if micro_batch.version != self._version:
            raise ValueError(f"micro-batch {micro_batch.id} is for version {micro_batch.version}, this trainer has {self._version}")
        # Every rank checks everything: one that raised alone would leave the others waiting for it.
        check(micro_batch.sequences, self._model.vocab_size)
        if micro_batch.loss not in KNOWN:
            raise ValueError(f"micro-batch {micro_batch.id} has unknown loss {micro_batch.loss!r}; known are {', '.join(KNOWN)}")
        mine = self._ranks.share([length(sequence) for sequence in micro_batch.sequences])
        packed = pack(tuple(micro_batch.sequences[index] for index in mine))
        gradients, measured = gradient(self._room().views, self._model, packed, micro_batch.loss, self._config.algo, self._ranks.joint)
        facts = self._facts(micro_batch, measured, monotonic_s() - started)
        if gradients:
            torch._foreach_add_(list(self._room().split(total).values()), list(gradients))
        return facts

    def sum(self) -> torch.Tensor:
        """A new tensor when the cell has several ranks, all of which must call; else the sum itself."""
        total = self._awake_sum()
        return total if self._ranks.world == 1 else self._ranks.total(total)

    def add_sum(self, other: torch.Tensor | None) -> None:
        """Counted once per cell: rank 0's is added, whatever other ranks pass."""
        own = self._awake_sum()
        self._ranks.agree(self._objection(other, "handed-in sum"))
        addend = self._ranks.addend_of_first(other, self._dtype)
        if addend is not None:
            own.add_(addend)

    def sum_to_bytes(self) -> bytes:
        return bytes(self.sum().to(torch.float32).numpy().astype("<f4", copy=False).tobytes())

    def sum_from_bytes(self, data: bytes) -> torch.Tensor:
        size = num_parameters(self._model)
        if len(data) != 4 * size:
            raise ValueError(f"handed-in sum has {len(data)} bytes, expected {4 * size}")
        return torch.from_numpy(np.frombuffer(data, dtype="<f4").astype(np.float32)).to(self._dtype)

    def apply(self, total: torch.Tensor | None, num_executions: int, version: Version) -> dict[str, float]:
        """See base. Ends with a zero sum at `version`. Raises ValueError without an optimizer state for the parameters,
        and, before anything is changed, when the gradient is not finite."""
        if self._optimizer is None:
            raise ValueError(f"this trainer has no optimizer state for version {self._version}; only the core applies")
        if num_executions <= 0:
            raise ValueError(f"num_executions={num_executions}: a batch without executions makes no update")
        self._ranks.agree(self._objection(total, "total of a batch"))
        flat = self._ranks.own_of_first(total.detach() if total is not None else None, self._dtype) / num_executions
        norm = self._ranks.norm(flat)
        if not np.isfinite(norm):
            raise ValueError(f"gradient of update to {version} has norm {norm}")
        scale, lr = clip_scale(norm, self._config.trainer.max_grad_norm), self._config.trainer.lr
        moved = self._optimizer.step(flat * scale, lr)
        self._publish(version)
        return {"grad_norm": norm, "lr": lr, "clip_scale": scale, "update_norm": moved}

    def fit(self, micro_batches: list[MicroBatch], epochs: int, version: Version, progress: Callable[[float], None]) -> dict[str, float]:
        parameters = self._room()
        sequences = tuple(sequence for micro_batch in micro_batches for sequence in micro_batch.sequences)
        check(sequences, self._model.vocab_size)
        plan = warm_start.Plan(config=self._config, epochs=epochs)
        result = warm_start.fit(parameters, self._model, sequences, plan, self._ranks, progress)
        self._optimizer = self._new_optimizer()
        self._publish(version)
        return result

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        """See base. Rank 0 writes. Raises StorageFull."""
        if self._version is None or self._optimizer is None:
            raise ValueError("this trainer has no optimizer state to save; only the core saves")
        weights, optimizer = self._ranks.whole(self._room().flat), self._optimizer.state(self._ranks.whole)
        if self._ranks.rank == 0:
            weights = {name: tensor.to(torch.float32) for name, tensor in weights.items()}
            checkpoint.save(folder, self._version, self._model, weights, optimizer, state)

    def load(self, folder: Path, version: Version) -> dict[str, Any]:
        saved = checkpoint.load(folder)
        if parameter_shapes(saved.model) != parameter_shapes(self._model):
            raise UserError("model", str(folder), "the checkpoint has another model's shapes; resume with the model it was made with")
        self._room().take(self._ranks.own(saved.weights))
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state(self._ranks.own(saved.optimizer))
        self._publish(version)
        return saved.state

    def init(self, version: Version) -> None:
        if self._config.model.path:
            _, tensors = load_checkpoint(Path(self._config.model.path))
        else:
            tensors = random_parameters(self._model, self._config.seed)
        self._room().take(self._ranks.own(tensors))
        self._optimizer = self._new_optimizer()
        self._publish(version)

    def _room(self) -> FlatParameters:
        """The parameters, allocated when first needed."""
        if self._parameters is None:
            self._parameters = FlatParameters(self._ranks.shapes, self._dtype)
        return self._parameters

    def _objection(self, whole: torch.Tensor | None, what: str) -> str:
        """Why rank 0 cannot go on with `whole`; empty: it can."""
        shape = (num_parameters(self._model),)
        is_good = self._ranks.rank != 0 or (whole is not None and tuple(whole.shape) == shape)
        return "" if is_good else f"{what} does not have shape {shape}"

    def _awake_sum(self) -> torch.Tensor:
        if self._sum is None:
            raise ValueError("this trainer is asleep: wake it before it accumulates")
        return self._sum

    def _new_optimizer(self) -> AdamW:
        trainer = self._config.trainer
        return AdamW(
            self._room(),
            betas=(trainer.beta1, trainer.beta2),
            eps=trainer.eps,
            weight_decay=trainer.weight_decay,
            norm=self._ranks.norm,
        )

    def _publish(self, version: Version) -> None:
        self._version = version
        self._store.put(version, self._ranks.whole(self._room().flat))
        if self._sum is not None:
            self._sum.zero_()

    def _facts(self, micro_batch: MicroBatch, own: Measured, seconds: float) -> MicroBatchFacts:
        """The cell's facts, equal on every rank. Raises ValueError when the loss of any rank is not finite."""
        row = [own.num_targets, own.num_on_policy, own.clipped, own.loss_sum, own.max_logprob_gap, seconds]
        rows = self._ranks.gather(torch.tensor(row, dtype=torch.float64))
        sums, peaks = self._ranks.sums(rows).tolist(), rows.amax(0).tolist()
        if not np.isfinite(sums[3]):
            raise ValueError(f"micro-batch {micro_batch.id} has loss {sums[3]}")
        return MicroBatchFacts(
            id=micro_batch.id,
            seconds=peaks[5],
            num_targets=int(sums[0]),
            max_logprob_gap=peaks[4],
            num_on_policy=int(sums[1]),
            loss_sum=sums[3],
            clipped=int(sums[2]),
        )


def _ranks_of(config: Config, model: Qwen3Config, rank: int, world: int) -> CellRanks:
    ranks = TensorRanks(rank, world, deadline_s=COLLECTIVE_DEADLINE_S) if world > 1 else None
    if ranks is None or config.cluster.tensor_parallel == 1:
        return DataParallel(ranks, model)
    return TensorParallel(model, ranks)
