"""MFU by hand: the formula, the published peaks by the names that torch gives cards, and the share of a ceiling."""

import math

import pytest

from explorer.config import RunConfig
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import segment_row
from explorer.results.flops import flop_per_token, in_words, utilization
from explorer.results.log import RunLog
from explorer.results.peaks import published_peak
from explorer.results.sample import Sample, Segment


def segment(**fields) -> Segment:
    return Segment(index=0, first_step=0, changes=(), started_at="2026", **fields)


def test_that_gpt2_asks_for_what_the_formula_says_by_hand():
    # 124,439,808 parameters, 1024 * 768 of them positions.
    asked = flop_per_token(parameters=124_439_808 - 786_432, layers=12, width=768, seq=1024)
    assert asked == 741_920_256 + 113_246_208


@pytest.mark.parametrize(
    ("name", "tflop_per_s"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A100 80GB PCIe", 312.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA GeForce RTX 4090", 165.2),
    ],
)
def test_that_known_cards_have_their_dense_peak_and_its_source(name: str, tflop_per_s: float):
    peak = published_peak(name)
    assert peak is not None
    assert peak.tflop_per_s == tflop_per_s
    assert peak.source


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 9999",
        "AMD EPYC",
    ],
)
def test_that_slices_laptops_and_unknown_cards_have_none(name: str):
    assert published_peak(name) is None


def test_that_a_share_is_arithmetic_done_over_each_ceiling():
    done = utilization(segment(flop_per_token=855e6, ceiling_tflop_per_s=700.0), 200_000, "NVIDIA H200")
    assert done.tflop_per_s == pytest.approx(171.0)
    assert done.measured == pytest.approx(171 / 700)
    assert done.published == pytest.approx(171 / 989.5)
    words = in_words(segment(flop_per_token=855e6, ceiling_tflop_per_s=700.0), "NVIDIA H200")
    assert "6 N + 12 L d T" in words
    assert "700 TFLOP/s" in words
    assert "989.5 TFLOP/s dense bfloat16" in words


def test_that_an_unknown_device_has_tflops_only_and_generation_nothing():
    done = utilization(segment(flop_per_token=855e6), 200_000, "Some card")
    assert done.tflop_per_s == pytest.approx(171.0)
    assert math.isnan(done.measured)
    assert math.isnan(done.published)
    assert "no ceiling" in in_words(segment(flop_per_token=855e6), "Some card")
    assert math.isnan(utilization(segment(ceiling_tflop_per_s=700.0), 200_000, "NVIDIA H200").tflop_per_s)


def test_that_the_csv_has_the_shares_of_a_segments_median():
    card = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37)
    log = RunLog()
    log.set_environment(Environment(devices=(card,), platform="", python="", explorer=""))
    config = RunConfig(device="cuda:0")
    log.begin_run(1, config)
    log.begin_segment(1, config, segment(flop_per_token=855e6, ceiling_tflop_per_s=700.0))
    log.append(
        1, [Sample(step=i, segment=0, phase="steady", time_s=i, tokens=8192, step_ms=40.0 + i % 3) for i in range(9)]
    )
    row = segment_row(log.run(1), 0, toggles={})
    tflop_per_s = 855e6 * 8192 / 0.041 / 1e12
    assert row["tflop_per_s"] == pytest.approx(tflop_per_s)
    assert row["mfu_measured"] == pytest.approx(tflop_per_s / 700)
    assert row["mfu_published"] == pytest.approx(tflop_per_s / 989.5)
