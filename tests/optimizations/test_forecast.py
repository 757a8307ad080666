"""The forecast of memory against what was measured on an H200, and against what autograd itself keeps."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from explorer.config import RunConfig
from explorer.models import MODELS
from explorer.optimizations import registry
from explorer.optimizations.forecasting import largest_batch, memory_forecast, terms_of
from explorer.results.forecast import CONTEXT_BYTES, MemoryTerms
from explorer.results.forecast import largest_batch as largest

GIB = 2**30
GPT2 = MODELS["gpt2"]
PLAIN = RunConfig(batch=8, seq=1024)


def config_of(base: RunConfig = PLAIN, **levels: str) -> RunConfig:
    for name, level in levels.items():
        base = registry.with_level(base, name, level)
    return base


# Peaks within a step on an H200, in GiB: assets/RESULTS.md, and the toggles' own words.
MEASURED = [
    (8, {}, 24.25),
    (8, {"precision": "bf16"}, 20.26),
    (8, {"precision": "bf16", "attention": "sdpa"}, 12.39),
    (8, {"precision": "bf16", "attention": "sdpa", "gelu": "triton"}, 9.01),
    (8, {"precision": "bf16", "attention": "sdpa", "gelu": "triton", "checkpointing": "all"}, 6.45),
    (8, {"precision": "fp16"}, 20.3),
    (8, {"precision": "tf32"}, 24.3),
    (8, {"precision": "bf16", "attention": "sdpa", "gelu": "torch", "dropout": "off"}, 8.9),
    (16, {"precision": "bf16", "attention": "sdpa", "gelu": "triton"}, 16.3),
    (16, {"precision": "bf16", "attention": "sdpa", "gelu": "triton", "checkpointing": "all"}, 11.4),
]


@pytest.mark.parametrize(("batch", "levels", "measured_gib"), MEASURED)
def test_that_the_peak_is_what_was_measured(batch: int, levels: dict[str, str], measured_gib: float):
    expected = memory_forecast(config_of(dataclasses.replace(PLAIN, batch=batch), **levels), GPT2)
    # Within 10% is promised; what was seen is within 2%.
    assert expected.peak_bytes / GIB == pytest.approx(measured_gib, rel=0.02)


def test_that_the_parts_are_those_of_the_fullest_moment():
    expected = memory_forecast(PLAIN, GPT2)
    sizes = dict(expected.parts())
    assert expected.moment == "loss"
    assert sizes["weights"] == 4 * 124_439_808
    assert sizes["optimizer"] == 8 * 124_439_808
    assert sizes["gradients"] == 0
    assert sizes["logits"] == 12 * 8 * 1024 * 50257
    assert expected.peak_bytes == sum(sizes.values())
    assert expected.needed_bytes == expected.peak_bytes + CONTEXT_BYTES


def test_that_a_tiny_batch_is_fullest_when_the_optimizer_updates():
    expected = memory_forecast(dataclasses.replace(PLAIN, batch=1, seq=16), GPT2)
    assert expected.moment == "update"
    sizes = dict(expected.parts())
    assert (sizes["gradients"], sizes["optimizer"], sizes["logits"]) == (4 * GPT2.parameters, 12 * GPT2.parameters, 0)
    fused = memory_forecast(config_of(dataclasses.replace(PLAIN, batch=1, seq=16), optimizer="fused"), GPT2)
    assert dict(fused.parts())["optimizer"] == 8 * GPT2.parameters


@pytest.mark.parametrize("model", ["mini", "gpt2", "gpt2-xl"])
def test_that_every_setting_of_training_is_forecast_and_grows_with_the_batch(model: str):
    toggles = [o for o in registry.OPTIMIZATIONS if "train" in o.workloads and o.memory_terms]
    assert {o.name for o in toggles} >= {"precision", "dropout", "attention", "gelu", "checkpointing", "optimizer"}
    for levels in itertools.product(*(o.level_ids() for o in toggles)):
        config = config_of(**dict(zip([o.name for o in toggles], levels, strict=True)))
        peaks = [
            memory_forecast(dataclasses.replace(config, batch=batch), MODELS[model]).peak_bytes for batch in (1, 8, 32)
        ]
        assert peaks == sorted(peaks)


def test_that_every_level_of_a_toggle_with_memory_says_it():
    for optimization in registry.OPTIMIZATIONS:
        said = optimization.memory_terms
        assert not said or set(said) == set(optimization.level_ids()), optimization.name


def test_that_two_toggles_cannot_state_the_same():
    both = MemoryTerms(drops=True) | MemoryTerms(product_bytes=2)
    assert (both.drops, both.product_bytes) == (True, 2)
    with pytest.raises(AssertionError, match="two toggles state drops"):
        both | MemoryTerms(drops=False)


def test_that_the_largest_batch_fits_and_one_more_does_not():
    config = config_of(precision="bf16", attention="sdpa")
    free_bytes = 24 * GIB
    found = largest_batch(config, GPT2, free_bytes)
    needed = [memory_forecast(dataclasses.replace(config, batch=found + more), GPT2).needed_bytes for more in (0, 1)]
    assert needed[0] <= free_bytes < needed[1]
    assert largest_batch(config, GPT2, GIB) == 0
    assert largest_batch(config, GPT2, 2**50) == 1024


@pytest.mark.parametrize("true", range(8))
def test_that_bisection_finds_each_largest(true: int):
    assert largest(lambda batch: batch <= true, 7) == true


def test_that_generation_is_not_forecast():
    with pytest.raises(ValueError, match="only training's memory is forecast"):
        memory_forecast(RunConfig(workload="generate"), GPT2)
    assert terms_of(RunConfig(workload="generate")).kept_every is None
