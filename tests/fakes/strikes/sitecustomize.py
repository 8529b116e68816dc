"""Python imports this at the start of every process that has this folder on its PYTHONPATH; see tests/fakes/striking.py."""

from tests.fakes.striking import prepare

prepare()
