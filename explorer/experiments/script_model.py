"""The lines of a script that make the model and its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from explorer.config import RunConfig
from explorer.experiments.script_parts import quoted
from explorer.models import MODELS
from explorer.results.home import expanded

ASSETS = Path(__file__).parents[2] / "assets"
HUB = "openai-community"
"""Where GPT-2's weights are published."""


def device_lines(config: RunConfig) -> str:
    """What makes ``device``."""
    if config.device == "auto":
        return 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    return f'device = torch.device("{config.device}")'


def imports(config: RunConfig) -> Sequence[str]:
    lines = ["import tokenizers", "import torch"]
    if config.weights == "pretrained":
        return [*lines, "from transformers import GPT2LMHeadModel"]
    lines.append("from transformers import GPT2Config, GPT2LMHeadModel")
    return [*lines, "from safetensors.torch import load_file"] if config.weights == "bundled" else lines


def model_lines(config: RunConfig) -> str:
    """What makes ``model`` on ``device``, with attention written out, in float32."""
    match config.weights:
        case "pretrained":
            name = f"{HUB}/{config.model}" if config.model in MODELS else _folder(config)
            made = f"model = GPT2LMHeadModel.from_pretrained({quoted(name)}, dtype=torch.float32)"
        case "bundled":
            weights = str(ASSETS / "mini.safetensors")
            made = (
                f"{_shape(config)}\n"
                "model = GPT2LMHeadModel(shape)\n"
                f"model.load_state_dict(load_file({quoted(weights)}), strict=False)  # without lm_head, which is tied"
            )
        case "random":
            made = (
                f"{_shape(config)}\n"
                "torch.manual_seed(SEED)\n"
                "model = GPT2LMHeadModel(shape)  # the explorer draws other numbers of the same distribution"
            )
    return (
        f"{made}\n"
        'model.loss_type = "ForCausalLM"  # what transformers takes anyway, without its warning\n'
        'model.set_attn_implementation("eager")  # written out: the whole T x T matrix\n'
        "model.to(device)"
    )


def tokenizer_lines(config: RunConfig) -> str:
    """What makes ``tokenizer`` and ``END``, the id between documents."""
    if config.weights == "pretrained" and config.model in MODELS:
        made = f"tokenizer = tokenizers.Tokenizer.from_pretrained({quoted(f'{HUB}/{config.model}')})"
    else:
        folder = Path(_folder(config)) if config.weights == "pretrained" else ASSETS
        made = f"tokenizer = tokenizers.Tokenizer.from_file({quoted(str(folder / 'tokenizer.json'))})"
    return f'{made}\nend = tokenizer.token_to_id("<|endoftext|>")'


def _folder(config: RunConfig) -> str:
    return str(expanded(config.model).resolve())


def _shape(config: RunConfig) -> str:
    if config.model not in MODELS:
        return f"shape = GPT2Config.from_pretrained({quoted(_folder(config))})"
    shape = MODELS[config.model]
    return (
        f"shape = GPT2Config(\n    vocab_size={shape.vocabulary}, n_positions={shape.positions}, n_embd={shape.width}, "
        f"n_layer={shape.layers}, n_head={shape.heads},\n    bos_token_id=0, eos_token_id=0,\n)"
    )
