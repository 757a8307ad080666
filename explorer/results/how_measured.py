"""How each figure comes about, in words with simple markup."""

from __future__ import annotations

HOW_MEASURED = (
    (
        "<b>Step time</b> is taken between the ends of two steps on the device itself (CUDA events, read when they are "
        "complete). The program never waits for the device in order to measure it, so steps overlap as they do in real "
        "training. On a CPU it is the clock around the step."
    ),
    ("<b>Throughput</b> is the step's tokens over its time. The large figure is the median of the last second."),
    (
        "<b>Memory</b>: <i>in a step</i> is the largest sum of live tensors within the step; <i>held</i> is what "
        "PyTorch's allocator keeps from the device, its cache included; <i>in use</i> is all that is in use on the "
        "card, by whomever. The bands are each measured: the step's peak and the cache by PyTorch's allocator, "
        "<i>context</i> (CUDA's context, code, libraries' workspaces) by NVML's figure for the worker less what its "
        "allocator holds, <i>others</i> by NVML's figures for other processes, <i>driver</i> by NVML. What they miss "
        "of the whole is in the CSV: memory_unexplained_bytes. One GiB is 2<sup>30</sup> bytes."
    ),
    (
        "<b>Warm-up</b>: the first step of a segment loads and compiles kernels, those after it settle. Statistics "
        "begin when the median of the last ten steps moves by less than 1%, after 60 steps or 30 s at the latest. A "
        "row that never settled is marked with ~."
    ),
    (
        "<b>Segments</b>: a setting changed while a run is going takes effect at the next step. Weights and optimizer "
        "state stay, and a new row with its own statistics begins."
    ),
    ("<b>Text</b>: time to first token is the prompt's pass; ms a token are the gaps between the tokens after it."),
    (
        "<b>Two runs one after the other are not a proof</b>: a card heats up, and others use it. Look at the spread "
        "(p5 to p95) before you believe a small difference."
    ),
)
