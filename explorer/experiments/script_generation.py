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
    if config.stop:
        constants += f"STOPS = ({', '.join(map(quoted, config.stop))},)  # the text ends before the first of them\n"
    definitions = [_choose(config), *(f"{piece}\n" for piece in parts.definitions), _main(config, parts)]
    return "\n".join(
        [header, imports, constants, "", "\n\n".join(definitions), '\nif __name__ == "__main__":\n    main()\n']
    )


def _choose(config: RunConfig) -> str:
    lines = []
    if config.repetition_penalty != 1:
        lines += [
            "scores = logits.gather(1, tokens)  # of what the text has already",
            f"less = torch.where(scores < 0, scores * {config.repetition_penalty!r}, "
            f"scores / {config.repetition_penalty!r})",
            "logits = logits.scatter(1, tokens, less)",
        ]
    if config.temperature == 0:
        lines.append("return logits.argmax(dim=-1, keepdim=True)")
        return (
            'def choose(logits, tokens, generator):\n    """The likeliest token of each row: (B, V) to (B, 1)."""\n'
            f"{_indent(chr(10).join(lines))}\n"
        )
    lines.append(f"logits = logits / {config.temperature!r}")
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
    return (
        'def choose(logits, tokens, generator):\n    """A token drawn for each row: (B, V) to (B, 1)."""\n'
        f"{_indent(chr(10).join(lines))}\n"
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
            *_text(config),
            'print(f"{made * BATCH / seconds:.1f} tokens/s with the prompt", file=sys.stderr)',
        ]
    )
    return f"def main():\n{_indent(body)}\n"


def _text(config: RunConfig) -> list[str]:
    """The lines that print the text."""
    if not config.stop:
        return [
            "text = tokenizer.decode(tokens[0].tolist(), skip_special_tokens=False)  # waits for the last token",
            "seconds, made = time.perf_counter() - began, args.tokens",
            "print(text)",
        ]
    return [
        "text = tokenizer.decode(tokens[0, len(prompt) :].tolist(), skip_special_tokens=False)",
        "seconds, made = time.perf_counter() - began, tokens.shape[1] - len(prompt)",
        "ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in STOPS if stop in text]",
        "print(args.prompt + (text[: min(ends)[1]] if ends else text))",
    ]


def _loop(config: RunConfig, parts: Parts) -> str:
    step = ["logits = logits.float()"]
    if _may_draw_nameless(config):
        step.append("logits[:, tokenizer.get_vocab_size() :] = -math.inf  # ids that have no text")
    step += [
        "token = choose(logits, tokens, generator)",
        "tokens = torch.cat([tokens, token], dim=1)",
        *_stops(config),
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


def _stops(config: RunConfig) -> list[str]:
    """The lines of a step that end the text."""
    if not config.stop:
        return []
    return [
        "if step % 8 == 0:  # looking for a stop string waits for the device",
        "    text = tokenizer.decode(tokens[0, len(prompt) :].tolist(), skip_special_tokens=False)",
        "    if any(stop in text for stop in STOPS):",
        "        break",
    ]


def _may_draw_nameless(config: RunConfig) -> bool:
    """Whether the model may have more tokens than its tokenizer: random weights go with the bundled one."""
    return config.weights == "random" and config.model != "mini"


def _indent(lines: str) -> str:
    return textwrap.indent(lines, "    ")
