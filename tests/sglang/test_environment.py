"""The environment that `gyre engine install sglang` makes holds what the server needs, and nothing that drags it towards a GPU."""

import json
import subprocess
from pathlib import Path

import pytest

from gyre_hpc.config.engine_schema import Device, SGLangConfig
from gyre_hpc.engines.sglang import environment
from tests.fakes.sglang_here import LAUNCHER
from tests.sglang.models import write_qwen2, write_qwen3

CHECK = """
import json, pathlib, runpy, sys
import torch
runpy.run_path(sys.argv[1], run_name="__mp_main__")
from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.disaggregation.mooncake.conn import MooncakeKVSender
import sgl_kernel, sglang, transformers
assert MooncakeKVSender.supports_host_tensor_indices is False
try:
    sgl_kernel.rmsnorm(1)
except NotImplementedError as error:
    said = str(error)
shapes = {}
for folder in sys.argv[2:]:
    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    shapes[model.config.model_type] = [len(told[kind]) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")]
print(json.dumps({"sglang": sglang.__version__, "torch": torch.__version__, "said": said, "shapes": shapes}))
"""


@pytest.mark.timeout(300)
def test_everything_a_server_imports_is_there_and_both_tiny_models_load(sglang: SGLangConfig, tmp_path: Path) -> None:
    write_qwen3(tmp_path / "qwen3")
    write_qwen2(tmp_path / "qwen2")
    python = str(environment.python_of(Path(sglang.environment)))
    argv = [python, "-c", CHECK, str(LAUNCHER), str(tmp_path / "qwen3"), str(tmp_path / "qwen2")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["sglang"] == environment.VERSION
    assert f"torch=={told['torch']}" in environment.pinned(Device.cpu)
    assert told["said"] == "sgl_kernel.rmsnorm is not there without a GPU"
    assert told["shapes"] == {"qwen3": [0, 0, 0], "qwen2": [0, 0, 0]}
