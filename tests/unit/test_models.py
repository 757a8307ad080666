"""Shapes of models, named and in folders."""

import json
from pathlib import Path

import pytest

from explorer.models import MODELS, ModelShape, shape_of


def test_that_gpt2_has_the_parameters_that_were_published():
    # Source: Radford et al. 2019, as counted from the published weights.
    counted = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200}
    assert {name: MODELS[name].parameters for name in counted} == counted


def test_that_a_folder_says_its_shape(tiny_model: Path):
    assert shape_of("gpt2") == MODELS["gpt2"]
    assert shape_of(str(tiny_model)) == ModelShape(layers=2, heads=2, width=32, vocabulary=8192, positions=64)


@pytest.mark.parametrize("change", [{"n_inner": 100}, {"n_layer": None}, {"n_head": "many"}])
def test_that_what_is_no_such_gpt2_has_none(tiny_model: Path, tmp_path: Path, change: dict[str, object]):
    config = json.loads((tiny_model / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    assert shape_of(str(tmp_path)) is None
    assert shape_of(str(tmp_path / "none")) is None
    (tmp_path / "config.json").write_text("[]")
    assert shape_of(str(tmp_path)) is None
