"""A token by this project's kernels, interpreted on the CPU: what they compute together, and what they leave behind."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from toggle_bench import config_with, decoded_logits, device_info, reference, run_of, small_gpt2, state_of, tokens

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.base import Run


def error(run: Run, model: torch.nn.Module, lengths: list[int], new: int) -> float:
    """Relative error of the logits of ``new`` tokens after prompts of ``lengths``, against a float64 forward pass."""
    ids = tokens(len(lengths), max(lengths) + new, run.device.type)
    rows = [row[: length + new] for row, length in zip(ids, lengths, strict=True)]
    exact_model = reference(model).to(run.device).eval()
    with torch.no_grad():
        exact = torch.stack([exact_model(input_ids=row[None]).logits[0, -new - 1 :] for row in rows])
    found = decoded_logits(run, [row[:-new] for row in rows], torch.stack([row[-new:] for row in rows])).double()
    return ((found - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("lengths", [[9], [9, 9], [3, 9, 1]], ids=str)
def test_that_the_kernels_together_give_the_full_forward_pass(lengths: list[int]) -> None:
    from explorer.kernels.launch import INTERPRETED
    from explorer.optimizations.triton_decoder import TritonDecoder, transposed

    if not INTERPRETED:
        pytest.skip("kernels are compiled in a run with GPU tests")
    model = small_gpt2(width=8, layers=2)  # a program takes the interpreter milliseconds
    run = run_of(model, RunConfig(workload="generate"))
    before = [parameter.tolist() for parameter in model.parameters()]
    with transposed(run):
        assert run.model.transformer.h[0].attn.c_attn.weight.T.is_contiguous()
        run.decoder = TritonDecoder
        assert error(run, model, lengths, 2) < 1e-6  # 3e-7 seen
    assert [parameter.tolist() for parameter in model.parameters()] == before
    assert all(parameter.is_contiguous() for parameter in model.parameters())


def test_that_its_own_choice_is_the_likeliest_token_of_its_logits() -> None:
    from explorer.kernels.launch import INTERPRETED
    from explorer.optimizations.rows import Rows
    from explorer.optimizations.triton_decoder import TritonDecoder, transposed

    if not INTERPRETED:
        pytest.skip("kernels are compiled in a run with GPU tests")
    run = run_of(small_gpt2(layers=1), RunConfig(workload="generate"))
    rows = Rows.empty(2, 8, run.device)
    with transposed(run), torch.inference_mode():
        rows.begin([tokens(1, 5)[0], tokens(1, 3)[0]])
        decoder = TritonDecoder(run, rows)
        rows.append(decoder.prefill().argmax(-1, keepdim=True))
        likeliest = decoder.decode(5).argmax(-1)
        decoder.append_likeliest(5, 96)
        assert rows.tokens[:, 6].tolist() == likeliest.tolist()
        assert rows.newest.tolist() == [6]


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [[37], [37, 37], [3, 37, 1], [5] * 40], ids=str)
@pytest.mark.parametrize(("weights", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3), ("bf16", 3e-2), ("int8", 3e-2)])
def test_that_every_format_of_weights_decodes_on_the_gpu(weights: str, tolerance: float, lengths: list[int]) -> None:
    config = registry.with_level(config_with("decoder", "triton", workload="generate"), "weight_dtype", weights)
    assert not registry.problems(config, device_info("cuda"))
    exact = small_gpt2(heads=4, width=256, layers=2)
    run = run_of(small_gpt2(heads=4, width=256, layers=2), config, "cuda")
    before = state_of(run)
    with ExitStack() as stack:
        registry.enter(stack, run)
        assert error(run, exact, lengths, 8) < tolerance
    assert state_of(run) == before
