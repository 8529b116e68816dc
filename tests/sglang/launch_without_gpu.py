"""SGLang's server where there is no GPU and no kernel package for the CPU: `engine.sglang.launcher` of tests, nothing else.

A run on GPUs never sees this file. It is started as a program by the Python of SGLang's environment, with the arguments of
`python -m sglang.launch_server`, and does three things before SGLang is imported, without changing a file of SGLang:

- torchvision's operators get declared. Its wheel is built with CUDA, so its library does not load, and transformers, which looks
  them up at import, fails.
- `sgl_kernel` gets a stand-in. SGLang imports it in many places and calls it, on this device, in none that dense models reach; a call
  raises, so that nothing is computed silently wrong.
- Prefill of prefill-decode disaggregation hands page indices over as plain arrays. Its usual way, pinned memory and a CUDA event, ends
  the scheduler; the other branch is SGLang's own.

SGLang starts its processes by spawn, and each runs this file again under another name: what stands outside `main` must do for all.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).resolve().parent)
PREFILL = "sglang.srt.disaggregation.mooncake.conn"


class Missing(types.ModuleType):
    """A package in which every name is a function that cannot be called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__version__ = "0.0.0"
        # Whoever asks whether it is installed looks for the spec.
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        asked_for = f"{self.__name__}.{name}"

        def missing(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{asked_for} is not there without a GPU")

        missing.__name__ = name
        return missing


class PlainIndices(importlib.abc.MetaPathFinder):
    """Changes one switch of one module when that is imported, and steps aside."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != PREFILL:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_switch(module: types.ModuleType) -> None:
            load(module)
            module.MooncakeKVSender.supports_host_tensor_indices = False  # type: ignore[attr-defined]

        spec.loader.exec_module = load_and_switch  # type: ignore[method-assign]
        return spec


def declare_operators() -> Any:
    """Of torchvision; what is returned keeps them declared."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def main() -> None:
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args(sys.argv[1:]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


# Modules beside this file are tests' own.
sys.path[:] = [entry for entry in sys.path if entry != HERE]
os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
operators = declare_operators()
sys.modules.setdefault("sgl_kernel", Missing("sgl_kernel"))
sys.meta_path.insert(0, PlainIndices())

if __name__ == "__main__":
    main()
