"""Ceilings: kept by device and driver, and true on a card."""

import time
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from explorer.engine import ceilings, kept_ceilings
from explorer.engine.cache import cache_dir
from explorer.results.ceilings import Ceilings
from explorer.results.environment import DeviceInfo
from explorer.results.flops import flop_per_token
from explorer.results.peaks import published_peak

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="GPU", total_memory_bytes=1, uuid="aaaa", driver="580.1")
FOUND = Ceilings(
    product_tflop_per_s=712.5,
    product_size=8192,
    product_dtype="bfloat16",
    copy_gb_per_s=4250.0,
    measured_at="2026-01-02T03:04:05+00:00",
)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_that_what_was_measured_is_known_for_this_device_and_driver_only():
    other = replace(GPU, uuid="bbbb")
    assert kept_ceilings.known(GPU) is None
    assert ceilings.measured(GPU, lambda device: FOUND) == FOUND
    ceilings.measured(other, lambda device: replace(FOUND, product_tflop_per_s=1.0))
    assert kept_ceilings.known(GPU) == FOUND
    assert kept_ceilings.known(replace(GPU, driver="581.0")) is None
    assert kept_ceilings.known(other).product_tflop_per_s == 1.0
    assert kept_ceilings.known(replace(GPU, uuid=None)) is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"aaaa 580.1": 3}', '{"aaaa 580.1": {"product_size": 1}}'])
def test_that_a_damaged_file_is_measured_over(content):
    path = cache_dir() / "ceilings.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert kept_ceilings.known(GPU) is None
    ceilings.measured(GPU, lambda device: FOUND)
    assert kept_ceilings.known(GPU) == FOUND


def test_that_a_cache_that_cannot_be_written_costs_nothing_but_the_next_measuring(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert ceilings.measured(GPU, lambda device: FOUND) == FOUND
    assert kept_ceilings.known(GPU) is None


def test_that_a_cpu_is_not_measured():
    with pytest.raises(ValueError, match="no ceiling is measured on a CPU"):
        ceilings.measured(replace(GPU, kind="cpu", id="cpu"))


def test_that_the_formula_agrees_with_torchs_own_count(tiny_model):
    """torch counts the products that run; what the formula adds is one product for each bias and norm."""
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(tiny_model, attn_implementation="eager")
    tokens = torch.randint(model.config.vocab_size, (2, 64))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, labels=tokens).loss.backward()
    weights = sum(p.numel() for p in model.parameters() if p.ndim == 2) - model.transformer.wpe.weight.numel()
    asked = flop_per_token(parameters=weights, layers=2, width=32, seq=64)
    assert counter.get_total_flops() == asked * tokens.numel()


@pytest.mark.gpu
@pytest.mark.alone
def test_that_a_card_does_what_is_plausible_within_two_seconds():
    from explorer.engine.device import environment

    device = environment().device("cuda")
    torch.randn(1024, device=device.id).sum().item()
    began_s = time.perf_counter()
    found = ceilings.measure(device)
    took_s = time.perf_counter() - began_s
    assert took_s < 2.0
    peak = published_peak(device.name)
    if peak is not None:
        assert 0.4 * peak.tflop_per_s < found.product_tflop_per_s < 1.02 * peak.tflop_per_s
    assert found.copy_gb_per_s > 100
    again = ceilings.measure(device)
    assert again.product_tflop_per_s == pytest.approx(found.product_tflop_per_s, rel=0.1)
    assert again.copy_gb_per_s == pytest.approx(found.copy_gb_per_s, rel=0.1)
