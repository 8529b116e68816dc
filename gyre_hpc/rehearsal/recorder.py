"""Collects what scenarios left into a recording. Disturbances that a harness cannot see are not recorded: its requests are the same."""

from gyre_hpc.harnesses import create_harness
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.protocol.tensors import unpack_ids
from gyre_hpc.rehearsal.base import Moment, Scenario
from gyre_hpc.rehearsal.company import TOKENIZER, Performance, Rehearsal
from gyre_hpc.rehearsal.dialects import dialect_of
from gyre_hpc.rehearsal.recording import Recording, scene_of, tokenizer_digest
from gyre_hpc.rehearsal.redaction import Redaction
from gyre_hpc.rehearsal.scenarios import SCENARIOS
from gyre_hpc.rehearsal.script import instruction

_UNSEEN = frozenset({Moment.role_switch, Moment.cell_lost, Moment.slow_cell, Moment.weights})


class Recorder:
    """One run of `gyre harness check`."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        harness = create_harness(rehearsal.harness)
        self.recording = Recording(
            harness=harness.name, version=rehearsal.version or harness.version, tokenizer=tokenizer_digest(TOKENIZER)
        )
        self._dialect = dialect_of(rehearsal.harness)

    def keep(self, scenario: Scenario, performance: Performance) -> None:
        """Take it in, unless there is nothing new in it."""
        if _UNSEEN & set(scenario.moments) or scenario.name == SCENARIOS[0].name:
            return
        evidence, tap = performance.evidence, performance.stage.wiretap
        outputs = [unpack_ids(record.output_ids).tolist() for record in evidence.records if isinstance(record, CallProgress)]
        said = performance.decode([id for ids in outputs for id in ids])
        ours = [
            said,
            instruction(scenario, self._dialect),
            *(do.text for says in scenario.parts.values() for say in says for do in say.does),
        ]
        redaction = Redaction(self._dialect.kept_words, ours)
        self.recording.scenes.append(scene_of(scenario.name, evidence.execution, tap.requests, tap.events, evidence.records, redaction))
