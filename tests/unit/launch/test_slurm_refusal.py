"""What SLURM says of a job that it does not take becomes one line about the key that it concerns. The words are SLURM 22.05's."""

import pytest

from gyre_hpc.launch.slurm.refusal import never_starts, refused

ASKED = {
    "partition": "main",
    "nodes": 9,
    "time_min": 60,
    "account": "me",
    "qos": "",
    "constraint": "h100",
    "gpus_per_node": 3,
    "memory_gb": "9G",
}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "sbatch: error: invalid partition specified: main\nsbatch: error: Batch job submission failed: Invalid partition name specified",
            "cluster.slurm.partition='main': SLURM refused the job: invalid partition specified: main",
        ),
        (
            "sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job submission failed: Requested node ...",
            "cluster.slurm.memory_gb='9G': SLURM refused the job: Memory specification can not be satisfied",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "cluster.slurm.account='me': SLURM refused the job: Invalid account or account/partition combination specified",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid feature specification",
            "cluster.slurm.constraint='h100': SLURM refused the job: Invalid feature specification",
        ),
        (
            "sbatch: error: Invalid generic resource (gres) specification",
            "cluster.slurm.gpus_per_node=3: SLURM refused the job: Invalid generic resource (gres) specification",
        ),
    ],
)
def test_the_first_error_is_told_with_the_key_that_it_concerns(said: str, told: str):
    assert str(refused(said, ASKED, "cluster.slurm.")) == told


def test_what_concerns_no_key_is_told_of_the_job():
    said = "sbatch: unrecognized option '--bogus=1'\nTry \"sbatch --help\" for more information"
    told = str(refused(said, {"nodes": 9, "partition": "", "time_min": 60}, "cluster.slurm."))
    assert told == "cluster.slurm='nodes=9, time_min=60': SLURM refused the job: unrecognized option '--bogus=1'"


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: error: fetch_config: DNS SRV lookup failed",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    ],
)
def test_a_slurm_that_does_not_answer_is_not_said_to_have_refused_the_job(said: str):
    told = str(refused(said, ASKED, "cluster.slurm."))
    assert told.startswith("cluster.kind='slurm': SLURM does not answer here (") and "SLURM_CONF" in told
    assert "refused" not in told


def test_words_that_nobody_knows_are_told_as_they_are():
    assert str(refused("the site's plugin\n  says no", ASKED, "")).endswith("SLURM refused the job: the site's plugin says no")


@pytest.mark.parametrize(
    ("reason", "field"), [("PartitionNodeLimit", "nodes"), ("PartitionTimeLimit", "time_min"), ("PartitionConfig", "job")]
)
def test_a_job_that_would_wait_for_ever_is_told(reason: str, field: str):
    error = never_starts(reason, ASKED, "")
    assert error is not None and error.field == field and reason in str(error)


@pytest.mark.parametrize("reason", ["", "None", "Priority", "Resources", "Dependency", "BeginTime", "ReqNodeNotAvail,_UnavailableNodes:n4"])
def test_a_job_that_may_start_is_not_refused(reason: str):
    assert never_starts(reason, ASKED, "") is None
