"""Every kind of event and its fields: what readers may count on. docs/formats.md shows the same table (a test holds them equal).

Machines note facts under these names; a kind that is not here is shown by nobody. Optional fields end with `?`.
"""

KINDS: dict[str, tuple[str, str]] = {
    # kind: (fields, meaning)
    "run_started": ("experiment seed updates cells scheduler", "launch made the run folder"),
    "told_anew": ("key before after forced", "an attempt was told another value than the one before; forced: by launch.force"),
    "attempt_started": ("attempt records", "the controller of an attempt is up; it read so many records of earlier ones"),
    "controller_restarted": ("attempt update", "a new controller took over within the attempt"),
    "phase": ("phase update", "starting, warm_collect, warm_fit, eval_before, training, eval_after, done"),
    "cell_state": ("cell state reason term", "what a cell does changed; reason is empty while it works"),
    "order": ("cell term role version? seq?", "a role order went out"),
    "lend": ("cell reason forced", "a cell leaves rollout for training"),
    "recall": ("cell reason", "a cell leaves training for rollout"),
    "switch": (
        "cell term direction steps",
        "a role change ended; seconds by step, leave_table first: until every gateway knew, the cell served on",
    ),
    "kv_moved": (
        "cell targets conversations of tokens seconds trouble",
        "a cell on its way to training gave KV to targets: conversations of those planned; trouble: why some of it stayed",
    ),
    "kv_stays": (
        "cell conversations reason",
        "so many conversations of such a cell are prefilled anew where they go on, as nothing was given",
    ),
    "decision": (
        "want reason forced live marginal ready cells_needed theta update training? cells? waiting? ready_work_s?",
        "the scheduler's target changed, with the waterlevel",
    ),
    "group_begun": ("group update", "the executions of one task may begin"),
    "execution_began": ("execution purpose?", "controller: may run, with its purpose; runner: its harness starts"),
    "execution_restarted": ("execution instead_of", "failed through no fault of the agent; runs again under a new id"),
    "execution_lost": ("execution reason", "its runner is gone for the attempt; another try follows"),
    "first_call": ("execution version", "its first model call was admitted to a cell that serves version"),
    "call_ended": ("call finish num_output cells wall_s", "a model call reached its end in the journal"),
    "call_failed": ("call reason", "a model call got no answer within its deadline"),
    "call_joined": ("call finish num_output", "a request turned out to be a call that is known: same answer, nothing sampled again"),
    "call_rerouted": ("call cell term why reason", "an engine attempt ended early; the call goes on elsewhere from its tokens so far"),
    "token_fault": (
        "call what num",
        "tokens lost, resampled, or digest_mismatch: the engine hashed other ids than are recorded, the call is not trained on",
    ),
    "branch": ("call parent reason role", "a call does not simply go on from its parent's answer"),
    "table": ("number cells", "a gateway goes by this routing table"),
    "journal_replayed": ("executions open_calls records", "a gateway shard took up what an earlier one left"),
    "storage_full": ("reason", "the run folder takes no writes; admission pauses, empty: cured"),
    "execution_ended": (
        "execution state score reason passed? wall_s? purpose?",
        "scored, partial, unscored or infra_error; the controller's, with purpose, is what counts",
    ),
    "group_complete": ("group first_step update", "all executions of a group ended"),
    "group_ready": (
        "group update micro_batches tokens executions branching trained_tokens staleness trajectories mean_score passed size batch_groups",
        "its micro-batches can be leased",
    ),
    "micro_batch_leased": ("id cell update tokens", "a training cell may accumulate it"),
    "micro_batch_accumulated": (
        "id cell update seconds targets gap on_policy clipped loss satellite live batch_full",
        "its gradient is in the sum of a cell; live = training executions still running",
    ),
    "hand_in": ("cell fence micro_batches", "a recalled satellite left its sum with the core"),
    "voided": ("cell micro_batches reason", "what a cell held for this batch returned to ready"),
    "commit_started": ("update generation members", "sums are being reduced into the core's scratch"),
    "commit_failed": ("update generation reason", "the scratch was dropped; a new generation follows"),
    "applied": (
        "update version executions micro_batches by_satellites joined_mid_batch grad_norm?",
        "the optimizer step is made and durable",
    ),
    "version_published": ("version update", "cells go over to it"),
    "cell_lost": ("cell reason voided", "a cell died or fell silent"),
    "cell_restarted": ("cell reason", "its next start was ordered"),
    "process_started": ("process incarnation", "a child of the supervisor was started"),
    "startup": (
        "process incarnation rank host steps",
        "a rank of a cell can work; seconds by step from the start of its process, imports first",
    ),
    "first_token": ("call", "the first token that a gateway shard got in its life"),
    "process_registered": ("process incarnation pid", "it can be reached"),
    "process_ended": ("reason process? incarnation? code?", "a child of the supervisor is gone; without process: the noting one ends"),
    "stacks_asked": (
        "process incarnation reason files",
        "a child that missed a deadline, or does not end, was to write its Python stacks to files (of the run folder) before it is killed",
    ),
    "process_unkillable": ("process incarnation", "a child did not end when killed"),
    "process_set_aside": ("process reason", "kept stopped for the rest of the run"),
    "node_arrived": ("node host", "the supervisor of another node of the allocation reported for the first time"),
    "node_restarted": ("node host", "another node's supervisor was started again; its children had gone with the one before"),
    "node_lost": ("node host reason", "a node was given up for the attempt; what was there is set aside"),
    "node_joined": ("node host cells", "a node that nobody planned brought cells"),
    "node_left": ("node host reason", "such a node was given up, its cells with it"),
    "node_leaving": ("reason", "a satellite's supervisor was told to end"),
    "node_fenced": ("silent_s children", "another node's supervisor heard no orders for too long: it kills its children and ends"),
    "cpu": ("cpu_s children_s", "CPU seconds of the noting process so far, and of its ended children; a runner counts its harnesses"),
    "warm_start": ("cached? executions? tokens? micro_batches?", "version 0 is loaded from the cache, or about to be fitted"),
    "blind": ("passed total pass_rate", "a scripted agent that never reads a file, on held-out tasks"),
    "evaluation": ("slot version passed total pass_rate", "held-out tasks on a frozen version; slot = updates made"),
    "checkpoint": ("version loaded? saved? as?", "a checkpoint was loaded or saved"),
    "alarm": ("what reason? cell? group? kind? version?", "somebody should look"),
    "step_failed": ("step reason", "a step of a cell failed; it is tried again or the cell says it is lost"),
    "action_failed": ("key reason", "something a runner tried for an execution that is over failed"),
    "sweep_failed": ("reason", "a runner could not remove what an earlier one left in scratch"),
    "measure_failed": ("reason", "a cell could not measure its engine"),
    "port_lost": ("reason", "a gateway came back on another port; its harnesses' open requests are lost to them"),
    "chat_format": ("notice", "what a user should know about the chat template: it refuses something, or its prompts do not grow"),
    "message_ignored": ("sender message", "not for this machine"),
    "tokens": ("counts", "token counters of a gateway shard over its attempt, when it ends"),
    "signal_failed": ("key reason", "a signal to a child could not be sent"),
    "mirror_failed": ("reason", "state/endpoints.json could not be written"),
    "attempts_unread": ("reason", "attempts/ could not be looked at"),
    "run_finishing": ("exit_code reason", "the supervisor stops everything"),
    "run_finished": ("exit_code reason update", "the run is over"),
}


def required(kind: str) -> set[str]:
    """Fields that every event of `kind` has. Raises KeyError for an unknown kind."""
    return {name for name in KINDS[kind][0].split() if not name.endswith("?")}
