"""The training script: text to tokens to batches, and the step, with each toggle's lines in their places."""

from __future__ import annotations

import textwrap

from explorer.config import RunConfig
from explorer.experiments import script_model
from explorer.experiments.script_parts import Parts, in_context, quoted, sorted_imports
from explorer.results.home import expanded

PYTHON_TEXT = '''\
def documents():
    """The running Python's documentation topics and the sources of its standard library: 20 MB of text at most."""
    left = 20_000_000
    for key in sorted(topics):
        left -= len(topics[key].encode())
        yield topics[key]
    library = Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    for path in sorted(library.rglob("*.py")):
        if left_out.intersection(path.relative_to(library).parts) or path.match("pydoc_data/topics.py"):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        left -= len(text.encode())
        if left < 0:
            return
        if text.strip():
            yield text
'''
WIKITEXT = '''\
def documents():
    """The training part of WikiText-2 as one document."""
    rows = load_dataset("Salesforce/wikitext", "wikitext-2-raw-v1", split="train")["text"]
    yield "".join(row for row in rows if row and not row.isspace())
'''
FILE_TEXT = '''\
def documents():
    """The text file as one document."""
    yield Path({path}).read_text(encoding="utf-8-sig")
'''
BATCHES = '''\
def batches(stream, device, steps):
    """``steps`` batches of token ids, int64 (BATCH, SEQ): windows of the stream at places drawn anew for each batch.

    A thread cuts them ahead, and into pinned memory, so that a copy can be under way while the device works.
    """
    ready = queue.Queue(maxsize=2)

    def cut():
        for index in range(steps):
            draw = np.random.default_rng([SEED, index])
            starts = draw.integers(0, len(stream) - SEQ, size=(BATCH, 1), endpoint=True)
            batch = torch.from_numpy(stream[starts + np.arange(SEQ)])
            ready.put(batch.pin_memory() if device.type == "cuda" else batch)

    threading.Thread(target=cut, daemon=True).start()
    for _ in range(steps):
        yield ready.get().to(device, non_blocking=True)
'''
LOSS = "loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss"


def write(config: RunConfig, parts: Parts, header: str) -> str:
    """The whole script."""
    text_imports, text = _text(config)
    imports = sorted_imports(
        [
            "import argparse",
            *([] if "batches" in parts.one else ["import queue", "import threading"]),
            "import time",
            "import numpy as np",
            *text_imports,
            *script_model.imports(config),
            *parts.imports,
        ]
    )
    constants = f"BATCH, SEQ, SEED = {config.batch}, {config.seq}, {config.seed}\nLOG_EVERY = 10  # steps\n"
    batches = f"{parts.the('batches', BATCHES.strip())}\n"
    definitions = [text, batches, *(f"{piece}\n" for piece in parts.definitions), _main(config, parts)]
    return "\n".join(
        [header, imports, constants, "", "\n\n".join(definitions), '\nif __name__ == "__main__":\n    main()\n']
    )


def _text(config: RunConfig) -> tuple[list[str], str]:
    if config.text == "python":
        return ["import sysconfig", "from pathlib import Path", "from pydoc_data.topics import topics"], PYTHON_TEXT
    if config.text == "wikitext-2":
        return ["from datasets import load_dataset"], WIKITEXT
    path = str(expanded(config.text).resolve())
    return ["from pathlib import Path"], FILE_TEXT.format(path=quoted(path))


def _main(config: RunConfig, parts: Parts) -> str:
    options = ", ".join([f"lr={config.lr!r}", f"weight_decay={config.weight_decay!r}", *parts.optimizer])
    body = "\n".join(
        [
            "parser = argparse.ArgumentParser()",
            'parser.add_argument("--steps", type=int, default=50)',
            "steps = parser.parse_args().steps",
            script_model.device_lines(config),
            'torch.backends.cuda.matmul.fp32_precision = "ieee"  # float32 products in full; TF32 is a toggle',
            "",
            script_model.tokenizer_lines(config),
            "texts = tokenizer.encode_batch_fast(list(documents()), add_special_tokens=False)",
            "stream = np.concatenate([np.array([*text.ids, end]) for text in texts])",
            "",
            script_model.model_lines(config),
            "model.train()",
            *parts.setup,
            "",
            f"optimizer = torch.optim.AdamW(model.parameters(), {options})",
            *parts.before_steps,
            "torch.manual_seed(SEED)  # of dropout",
            "losses = []",
            "began = time.perf_counter()",
            in_context(parts.around, _loop(config, parts)),
        ]
    )
    return f"def main():\n{_indent(body)}\n"


def _loop(config: RunConfig, parts: Parts) -> str:
    step = ["optimizer.zero_grad(set_to_none=True)", _backward(parts), *filter(None, [parts.the("after_backward", "")])]
    if config.grad_clip:
        clip = f"torch.nn.utils.clip_grad_norm_(model.parameters(), {config.grad_clip!r})"
        step.append(parts.the("clip", clip))
    step.append(parts.the("update", "optimizer.step()"))
    before, replaced = "", parts.the("step", "")
    if replaced:
        body = _indent("\n".join([*step, "return loss.detach()"]))
        before = f"\ndef train_step(tokens):\n{body}\n\ntrain_step = {replaced}\n"
        step = ["loss = train_step(tokens).clone()  # the next replay overwrites it"]
    step += [
        *filter(None, [parts.the("after_step", "")]),
        "losses.append(loss.detach())  # on the device: reading it would wait for the step",
        "if len(losses) == LOG_EVERY or step == steps:",
        "    values = torch.stack(losses).tolist()",
        "    step_ms = (time.perf_counter() - began) / len(values) * 1e3",
        "    for number, value in enumerate(values, start=step - len(values) + 1):",
        '        print(f"step {number}  loss {value:.6f}  {step_ms:.2f} ms", flush=True)',
        "    losses.clear()",
        "    began = time.perf_counter()",
    ]
    body = _indent("\n".join(step))
    return f"{before}for step, tokens in enumerate(batches(stream, device, steps), start=1):\n{body}"


def _backward(parts: Parts) -> str:
    """The lines that make ``loss`` and the gradients."""
    backward = parts.the("backward", "loss.backward()")
    if parts.micro_batches == 1:
        return f"{in_context(parts.forward, parts.the('loss', LOSS))}\n{backward}"
    loss = parts.the("loss", LOSS).replace("=tokens", "=part") + f" / {parts.micro_batches}"
    body = _indent(f"{in_context(parts.forward, loss)}\n{backward}\ntotal += loss.detach()")
    before = f"total = torch.zeros((), device=device)\nfor part in tokens.chunk({parts.micro_batches}):"
    return f"{before}\n{body}\nloss = total"


def _indent(lines: str) -> str:
    return textwrap.indent(lines, "    ")
