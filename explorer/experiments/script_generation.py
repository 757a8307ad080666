"""The generation script: the prompt, a token a step, with each toggle's lines in their places."""

from __future__ import annotations

import textwrap

from explorer.config import RunConfig
from explorer.experiments import script_model
from explorer.experiments.script_parts import Parts, in_context, quoted, sorted_imports

PREFILL = "logits = model(tokens, past_key_values=cache, logits_to_keep=1).logits[:, -1]"
DECODE = "logits = model(token, past_key_values=cache).logits[:, -1]"


def write(config: RunConfig, parts: Parts, header: str) -> str:
    """The whole script."""
    imports = sorted_imports(
        [
            "import argparse",
            "import sys",
            "import time",
            *(["import math"] if _may_draw_nameless(config) else []),
            *([] if "cache" in parts.one else ["from transformers import DynamicCache"]),
            *script_model.imports(config),
            *parts.imports,
        ]
    )
    constants = f"BATCH, SEED = {config.batch}, {config.seed}\n"
    definitions = [_choose(config), *(f"{piece}\n" for piece in parts.definitions), _main(config, parts)]
    return "\n".join(
        [header, imports, constants, "", "\n\n".join(definitions), '\nif __name__ == "__main__":\n    main()\n']
    )


def _choose(config: RunConfig) -> str:
    if config.temperature == 0:
        return 'def choose(logits, generator):\n    """The likeliest token of each row: (B, V) to (B, 1)."""\n' + (
            "    return logits.argmax(dim=-1, keepdim=True)\n"
        )
    lines = [f"logits = logits / {config.temperature!r}"]
    if config.top_k:
        lines += [
            f"least = logits.topk(min({config.top_k}, logits.shape[-1]), dim=-1).values[:, -1:]",
            'logits = logits.masked_fill(logits < least, -float("inf"))',
        ]
    lines.append("probabilities = logits.softmax(dim=-1)")
    if config.top_p < 1:
        lines += [
            "ordered, order = probabilities.sort(dim=-1, descending=True)",
            f"beyond = ordered.cumsum(dim=-1) - ordered >= {config.top_p!r}",
            "beyond[:, 0] = False",
            "probabilities = probabilities.masked_fill(beyond.scatter(-1, order, beyond), 0.0)",
        ]
    lines += [
        "# As torch.multinomial draws, which would wait for the device to check its input.",
        "noise = torch.empty_like(probabilities).exponential_(1.0, generator=generator)",
        "return (probabilities / noise).argmax(dim=-1, keepdim=True)",
    ]
    return 'def choose(logits, generator):\n    """A token drawn for each row: (B, V) to (B, 1)."""\n' + (
        _indent("\n".join(lines)) + "\n"
    )


def _main(config: RunConfig, parts: Parts) -> str:
    body = "\n".join(
        [
            "parser = argparse.ArgumentParser()",
            f'parser.add_argument("--prompt", default={quoted(config.prompt)})',
            f'parser.add_argument("--tokens", type=int, default={config.max_new_tokens})',
            "args = parser.parse_args()",
            script_model.device_lines(config),
            'torch.backends.cuda.matmul.fp32_precision = "ieee"  # float32 products in full; TF32 is a toggle',
            "",
            script_model.tokenizer_lines(config),
            "",
            script_model.model_lines(config),
            "model.eval()",
            *parts.setup,
            "",
            "prompt = tokenizer.encode(args.prompt, add_special_tokens=False).ids or [end]",
            "if len(prompt) + args.tokens > model.config.n_positions:",
            '    sys.exit(f"{len(prompt)} + {args.tokens} tokens do not fit into {model.config.n_positions}")',
            "tokens = torch.tensor([prompt] * BATCH, device=device)",
            "generator = torch.Generator(device=device).manual_seed(SEED)",
            "began = time.perf_counter()",
            in_context(("torch.inference_mode()", *parts.around), _loop(config, parts)),
            "text = tokenizer.decode(tokens[0].tolist(), skip_special_tokens=False)  # waits for the last token",
            "seconds = time.perf_counter() - began",
            "print(text)",
            'print(f"{args.tokens * BATCH / seconds:.1f} tokens/s with the prompt", file=sys.stderr)',
        ]
    )
    return f"def main():\n{_indent(body)}\n"


def _loop(config: RunConfig, parts: Parts) -> str:
    step = ["logits = logits.float()"]
    if _may_draw_nameless(config):
        step.append("logits[:, tokenizer.get_vocab_size() :] = -math.inf  # ids that have no text")
    step += [
        "token = choose(logits, generator)",
        "tokens = torch.cat([tokens, token], dim=1)",
        "if step < args.tokens:",
        _indent(in_context(parts.forward, parts.the("decode", DECODE))),
    ]
    return "\n".join(
        [
            parts.the("cache", "cache = DynamicCache(config=model.config)"),
            in_context(parts.forward, parts.the("prefill", PREFILL)),
            *(line for line in [parts.the("before_decoding", "")] if line),
            "for step in range(1, args.tokens + 1):",
            _indent("\n".join(step)),
        ]
    ).strip("\n")


def _may_draw_nameless(config: RunConfig) -> bool:
    """Whether the model may have more tokens than its tokenizer: random weights go with the bundled one."""
    return config.weights == "random" and config.model != "mini"


def _indent(lines: str) -> str:
    return textwrap.indent(lines, "    ")
