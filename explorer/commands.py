"""Commands whose modules import Qt or torch, with parsers of their own."""

from __future__ import annotations

WITH_PARSERS_OF_THEIR_OWN = {
    "generate-bench": (
        "explorer.cli_generate_bench",
        "tokens/s beside transformers' generate, and what bounds a token",
    ),
    "train-bench": ("explorer.cli_train_bench", "training at the limit, beside nanoGPT"),
    "window-tax": ("explorer.gui.window_tax", "does the window slow down what it measures?"),
    "soak": ("explorer.gui.soak", "does it last? memory, lost steps, the window's tick gaps"),
    "tour": ("explorer.gui.tour", "the window used by script: pictures and CSV"),
    "train-mini": ("explorer.engine.train_mini", "train the bundled small model anew"),
}
"""Each with its module, which has a ``main(argv) -> int``, and what it is for."""
