"""The input of a decoding step: a token's embedding and its position's, added in one kernel.

    x = E[tokens[i, newest]] s + P[lengths[i] + newest - start]          x (B, D)

s is a scale a token where E is int8, else nothing. The token, its slot and its position are read on the device, so
that one recorded launch serves every token. Added in float32.
"""

from __future__ import annotations

from torch import Tensor

from explorer.kernels.launch import check, dependent, run, tl, triton


@triton.jit(repr=lambda specialization: "decode_embedding")
def _embed(
    tokens_ptr, lengths_ptr, start_ptr, newest_ptr, table_ptr, scale_ptr, positions_ptr, x_ptr, slots, width,
    SCALED: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        # In this order, unlike elsewhere: a token's other kernels begin after all that was written before the token.
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0)
    newest = tl.load(newest_ptr)
    token = tl.load(tokens_ptr + row * slots + newest)
    position = tl.load(lengths_ptr + row) + newest - tl.load(start_ptr)
    d = tl.arange(0, WIDE)
    inside = d < width
    x = tl.load(table_ptr + token * width + d, mask=inside, other=0.0).to(tl.float32)
    if SCALED:
        x *= tl.load(scale_ptr + token).to(tl.float32)
    x += tl.load(positions_ptr + position * width + d, mask=inside, other=0.0).to(tl.float32)
    tl.store(x_ptr + row * width + d, x.to(x_ptr.dtype.element_ty), mask=inside)


def decode_embedding(
    tokens: Tensor, lengths: Tensor, start: Tensor, newest: Tensor,
    table: Tensor, scale: Tensor | None, positions: Tensor, x: Tensor,
) -> None:  # fmt: skip
    """Fill ``x`` (B, D) for the newest of ``tokens`` (B, S).

    ``tokens``, ``lengths`` (B,), ``start`` (1,) and ``newest`` (1,) are int64; ``table`` (V, D), ``scale`` (V,) with an
    int8 table, ``positions`` (T, D). All contiguous. Never synchronises.

    Raises:
        ValueError: a shape, layout or dtype that is not allowed.
    """
    check(x, "x")
    batch, width = x.shape
    for name, tensor, shape in (
        ("tokens", tokens, (batch, tokens.shape[-1])), ("lengths", lengths, (batch,)), ("x", x, (batch, width)),
        ("table", table, (len(table), width)), ("positions", positions, (len(positions), width)),
    ):  # fmt: skip
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(f"{name} is {tuple(tensor.shape)}; x of {tuple(x.shape)} needs contiguous {shape}")
    early = dependent(x)
    run(
        _embed, (batch,), x, tokens, lengths, start, newest, table, x if scale is None else scale, positions, x,
        tokens.shape[1], width, SCALED=scale is not None, WIDE=triton.next_power_of_2(width), EARLY=early,
        num_warps=4, launch_pdl=early,
    )  # fmt: skip
