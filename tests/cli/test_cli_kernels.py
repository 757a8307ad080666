"""The lab on the command line, with its worker on a thread."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

from explorer.entry import main

LAB = ["kernels", "--in-process", "--device", "cpu", "--quick", "--variants", "torch,hf"]


def test_that_the_lab_writes_a_row_a_variant_and_goes_on_where_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lab.csv"
    assert main([*LAB, "--only", "gelu", "--csv", str(file)]) == 0
    first = pandas.read_csv(file)
    assert list(zip(first["operation"], first["variant"], strict=True)) == [
        (name, variant) for name in ("gelu", "gelu_backward") for variant in ("hf", "torch")
    ]
    assert (first["rel_error"] < 1e-6).all()
    assert first["gb_per_s"].tolist() == pytest.approx((first["moved_bytes"] / first["time_us"] / 1e3).tolist())
    # The roof: what lasts longer, moving the bytes at a copy's speed or computing at a product's.
    moving_us, computing_us = (
        first["moved_bytes"] / first["copy_gb_per_s"] / 1e3,
        first["flop"] / first["product_tflop_per_s"] / 1e6,
    )
    roof_us = moving_us.combine(computing_us, max)
    assert first["ceiling_fraction"].tolist() == pytest.approx((roof_us / first["time_us"]).tolist())
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:4] == ["operation", "dtype", "shape", "variant"]
    assert printed[-1].startswith("gelu_backward float32 64x768: ")
    assert main([*LAB, "--only", "gelu,layer_norm", "--csv", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    again = pandas.read_csv(file)
    assert again["time_us"].tolist()[:4] == first["time_us"].tolist()
    assert set(again["operation"]) == {"gelu", "gelu_backward", "layer_norm", "layer_norm_backward"}
    assert len(found["sentences"]) == 4


@pytest.mark.parametrize(
    ("wrong", "words"), [(["--only", "relu"], "no operation relu"), (["--device", "cuda:9"], "is not here")]
)
def test_that_a_wrong_request_is_refused(capsys: pytest.CaptureFixture[str], wrong: list[str], words: str) -> None:
    assert main([*LAB, *wrong]) == 2
    assert words in capsys.readouterr().err
