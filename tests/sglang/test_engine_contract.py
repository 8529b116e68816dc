"""The contract suite of engines, word for word, with a real SGLang: weights by gloo, float32, one server for all tests."""

from tests.contracts import test_computing_engine, test_engine, test_engine_endings
from tests.fakes.contract_kinds import of_kind

globals().update(of_kind("sglang", test_engine, test_computing_engine, test_engine_endings))
