"""Steps of a process's start add up to its age."""

from gyre_hpc.observability.startup import Startup, age_s


def test_the_first_step_begins_when_the_process_did():
    age = age_s()
    assert age is not None
    startup = Startup()
    startup.over("imports")
    startup.over("engine")
    assert startup.steps["imports"] >= age - 0.02  # ticks of the kernel
    assert list(startup.steps) == ["imports", "engine"]
    assert startup.steps["engine"] >= 0
