"""What a server is told of the model: a Hugging Face folder without weights, for --load-format dummy --skip-tokenizer-init.

It names no end-of-text token: answers end by what each request says, as with the other engines, not by what a checkpoint says.
"""

import json
from pathlib import Path

from gyre_hpc.models.qwen3_config import Qwen3Config, to_hf
from gyre_hpc.whole_file import write_whole


def write_model_folder(folder: Path, model: Qwen3Config, *, dtype: str) -> Path:
    """Write config.json into `folder`, by rename; returns `folder`. Called by each node that sees another disk.

    dtype: of the server's weights (flags.dtype_of). A folder that holds the same already is left as it is.
    """
    data = json.dumps(to_hf(model) | {"torch_dtype": dtype, "dtype": dtype}, indent=2, sort_keys=True).encode() + b"\n"
    path = folder / "config.json"
    if not path.is_file() or path.read_bytes() != data:
        write_whole(path, data)
    return folder
