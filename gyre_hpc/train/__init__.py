"""Trainers behind one interface: embedded (our decoder) and timed (waits). Losses, optimizer, warm start, checkpoints.

Importing this package loads no torch; `create_trainer` loads what the chosen kind needs.
"""

from gyre_hpc.config.schema import Config, TrainerKind
from gyre_hpc.train.base import Trainer
from gyre_hpc.transport.base import SnapshotStore


def create_trainer(config: Config, *, vocab_size: int, store: SnapshotStore, rank: int = 0, world: int = 1) -> Trainer:
    """The trainer of one rank. vocab_size: of the tokenizer; store: this rank's. Raises UserError on a bad configuration.

    world > 1: torch.distributed's default WORLD must be this cell's (embedded).
    """
    if config.trainer.kind is TrainerKind.timed:
        from gyre_hpc.train.timed import TimedTrainer

        return TimedTrainer(config, store=store, rank=rank)
    from gyre_hpc.train.embedded import EmbeddedTrainer

    return EmbeddedTrainer(config, vocab_size=vocab_size, store=store, rank=rank, world=world)
