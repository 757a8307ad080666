"""The lab's figures by hand, its rows in JSON and CSV, and its sentences."""

from __future__ import annotations

import json
import math

import pytest

from explorer.results.lab import OPERATIONS, Case, Dtype, LabRow, Outcome, lab_rows
from explorer.results.lab_words import lab_words

GELU = Case(operation="gelu", dtype="bfloat16", shape=(1000, 500))
ATTENTION = Case(operation="attention", dtype="bfloat16", shape=(2, 4, 1024, 64))


def row(case: Case, variant: str, time_us: float = math.nan, outcome: Outcome = "measured", **more: float) -> LabRow:
    return LabRow(case=case, variant=variant, outcome=outcome, time_us=time_us, **more)  # type: ignore[arg-type]


def test_that_bandwidth_and_its_share_of_a_copy_are_those_of_the_bytes_that_must_move() -> None:
    one = row(GELU, "torch", 2.0, copy_gb_per_s=2000.0, product_tflop_per_s=500.0)
    assert GELU.moved_bytes == 2 * 500_000 * 2  # read and written, two bytes each
    assert one.gb_per_s == pytest.approx(1000.0)
    assert one.ceiling_fraction == pytest.approx(0.5)


def test_that_arithmetic_is_the_ceiling_where_it_takes_longer_than_moving() -> None:
    flop = 2 * (2 * 4) * 1024 * 1024 * 64  # two products, each 2 T T D / 2 where causal
    assert ATTENTION.flop == flop
    one = row(ATTENTION, "flash", 10.0, copy_gb_per_s=4000.0, product_tflop_per_s=500.0)
    assert one.tflop_per_s == pytest.approx(flop / 10e-6 / 1e12)
    assert one.ceiling_fraction == pytest.approx(one.tflop_per_s / 500.0)
    slow_memory = row(ATTENTION, "flash", 10.0, copy_gb_per_s=1.0, product_tflop_per_s=500.0)
    assert slow_memory.ceiling_fraction == pytest.approx(4 * 8 * 1024 * 64 * 2 / 1e9 / 10e-6)


def test_that_a_backward_pass_moves_and_computes_what_its_formulas_say() -> None:
    backward = Case(operation="attention_backward", dtype="float32", shape=(1, 1, 8, 4))
    assert (backward.moved_bytes, backward.flop) == (8 * 32 * 4, 2.5 * 2 * 8 * 8 * 4)
    head = Case(operation="linear_cross_entropy", dtype="float16", shape=(6, 4, 10))
    assert (head.moved_bytes, head.flop) == (2 * (6 * 4 + 10 * 4) * 2, 6 * 6 * 4 * 10)
    norm = Case(operation="add_layer_norm", dtype="float32", shape=(10, 3))
    assert norm.moved_bytes == (4 * 30 + 2 * 3) * 4


def test_that_rows_come_back_from_strict_json_and_have_empty_cells_for_what_was_not_measured() -> None:
    refused = LabRow(case=ATTENTION, variant="flash", outcome="refused", problem="no")
    timed = row(GELU, "torch", 2.0, copy_gb_per_s=2000.0, peak_bytes=5)
    for one in (refused, timed):
        again = LabRow.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False)))
        assert repr(again) == repr(one)  # by text, since NaN equals nothing
    cells = lab_rows([refused, timed], device_name="Big GPU", versions={"torch": "2"})
    assert [c["time_us"] for c in cells] == [None, 2.0]
    assert [c["peak_bytes"] for c in cells] == [None, 5]
    assert [c["shape"] for c in cells] == ["2x4x1024x64", "1000x500"]
    assert {c["device_name"] for c in cells} == {"Big GPU"}
    with pytest.raises(ValueError, match="cannot be read"):
        LabRow.from_dict({"case": {}, "variant": "torch"})


def sentence(*rows: LabRow) -> str:
    (words,) = lab_words(rows)
    return words


def test_that_an_operation_bound_by_memory_is_told_by_its_largest_case_and_its_share_of_a_copy() -> None:
    small = Case(operation="gelu", dtype="bfloat16", shape=(10, 500))
    ceilings = {"copy_gb_per_s": 2000.0, "product_tflop_per_s": 500.0}
    assert (
        sentence(row(small, "hf", 1.0), row(GELU, "hf", 8.0, **ceilings), row(GELU, "triton", 1.25, **ceilings))
        == "gelu bfloat16 1000x500: ours takes 1.2 us (80% of a copy's speed) and transformers' own takes 8.0 us "
        "(12% of a copy's speed); ours is 6.40x as fast as transformers' own."
    )
    slow_at_products = {"copy_gb_per_s": 2000.0, "product_tflop_per_s": 0.1}
    assert "1.2 us (80% of a copy's speed)" in sentence(row(GELU, "triton", 1.25, **slow_at_products))


def test_that_attention_tells_our_speed_beside_flash_and_who_runs_out_of_memory() -> None:
    longer = Case(operation="attention", dtype="bfloat16", shape=(2, 4, 2048, 64))
    words = sentence(
        row(ATTENTION, "naive", 300.0),
        row(ATTENTION, "flash", 30.0),
        row(ATTENTION, "triton", 40.0),
        row(longer, "flash", 90.0),
        row(longer, "naive", outcome="out of memory"),
    )
    assert words == (
        "attention bfloat16 2x4x1024x64: flash 30.0 us, ours 40.0 us and naive 300.0 us; ours runs at 0.75x of flash's "
        "speed; out of memory: naive from 2048 tokens on."
    )


def test_that_refusals_are_told_by_what_decides_them() -> None:
    rows = []
    for variant in ("flash", "efficient", "math"):
        for dtype in ("float32", "bfloat16"):
            for size in (64, 512):
                for mask in ("causal", "mask"):
                    refused = variant == "flash" and (dtype == "float32" or mask == "mask" or size == 512)
                    refused |= variant == "efficient" and size == 512 and mask == "mask" and dtype == "float32"
                    case = Case(operation="attention_support", dtype=_dtype(dtype), shape=(1, 2, 8, size), detail=mask)
                    rows.append(row(case, variant, outcome="refused" if refused else "runs"))
    assert sentence(*rows) == (
        "attention_support: flash refuses float32, mask mask, head size 512; efficient refuses 1 of the other 8 cases; "
        "math takes all."
    )


def _dtype(name: str) -> Dtype:
    return "float32" if name == "float32" else "bfloat16"


def test_that_layouts_small_operations_and_waits_are_told_against_their_plain_form() -> None:
    layout = Case(operation="layout", dtype="float32", shape=(8, 8))
    small = Case(operation="small_operations", dtype="float32", shape=(1024,))
    item = Case(operation="item", dtype="float32", shape=(256,))
    assert lab_words(
        [
            row(layout, "contiguous", 10.0),
            row(layout, "strided", 25.0),
            row(small, "eager", 100.0),
            row(small, "graph", 20.0),
            row(item, "no_wait", 200.0),
            row(item, "item_each_step", 250.0),
        ]
    ) == [
        "layout float32 8x8: against contiguous numbers (10.0 us) GeLU takes strided 2.50x as long.",
        "small_operations: 24 operations take on 1024 numbers 100.0 us one by one, graph 5.0x as fast.",
        "item: asking for the loss at each step costs 50.0 us of 200.0 us (+25%) at width 256.",
    ]


def test_that_nothing_measured_tells_nothing() -> None:
    failed = [
        LabRow(case=Case(operation=name, dtype="float32", shape=(1, 1, 1, 1)), variant="torch", outcome="failed")
        for name in OPERATIONS
        if name != "attention_support"
    ]
    assert lab_words([]) == lab_words(failed) == []


def test_that_what_has_nothing_beside_it_yet_is_told_alone_or_not_at_all() -> None:
    rows = [
        row(Case(operation=name, dtype="float32", shape=shape), operation.variants[0], 5.0)
        for name, operation in OPERATIONS.items()
        if name != "attention_support"
        for shape in [(4, 8, 16, 32)[: len(operation.dimensions)]]
    ]
    words = "\n".join(lab_words(rows))
    assert "gelu float32 4x8: transformers' own takes 5.0 us" in words
    assert "layout" not in words
    assert "item" not in words
