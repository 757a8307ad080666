"""What Triton makes of the kernels for an sm_90 card, seen without one: it compiles ahead of time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Runs in a process of its own: in this one the kernels are interpreted. Prints, by kernel, its 16-byte accesses.
COMPILE = r"""
import collections, json, re
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from explorer.kernels import attention, bias_gelu, column_sum, gelu, joined_gradient, layer_norm
from explorer.kernels import linear_cross_entropy as loss

FLOAT32 = {"mean_ptr", "rstd_ptr", "parts_ptr", "lse_ptr", "delta_ptr", "loss_ptr",
           "factor_ptr"}

def type_of(name, dtype):
    if name.endswith("_ptr"):
        return "*i64" if name == "target_ptr" else "*fp32" if name in FLOAT32 else f"*{dtype}"
    return "fp32" if name in {"eps", "scale", "scale_log2"} else "i32"

def accesses(kernel, dtype, warps, stages=3, **constants):
    names = kernel.arg_names
    # As at a launch: pointers, strides and widths that are multiples of 16 are known to be so; counts are not.
    aligned = [n for n in names if n.endswith(("_ptr", "_b", "_h", "_t")) or n in {"stride", "columns"}]
    source = ASTSource(
        fn=kernel,
        signature={n: "constexpr" if n in constants else type_of(n, dtype) for n in names},
        constexprs={(names.index(n),): value for n, value in constants.items()},
        attrs={(names.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": stages})
    return collections.Counter(re.findall(WHOLE, compiled.asm["ptx"]))

# An asynchronous copy past the L1 cache (.cg) is one of 16 bytes.
WHOLE = r"(?:ld|st)\.global\.v4\.b32|cp\.async\.cg|wgmma\.mma_async"
found = {}
for dtype in ("fp32", "bf16"):
    found[f"gelu {dtype}"] = accesses(gelu._forward, dtype, 8, BLOCK=4096)
    found[f"gelu gradient {dtype}"] = accesses(gelu._backward, dtype, 8, BLOCK=4096)
found["bias_gelu"] = accesses(bias_gelu._forward, "bf16", 8, ROWS=4, COLUMNS=1024)
found["bias_gelu gradient"] = accesses(bias_gelu._backward, "bf16", 4, ROWS=2, COLUMNS=1024, STAGES=2)
found["column_sum"] = accesses(column_sum._column_sum, "bf16", 4, ROWS=32, COLUMNS=64)
found["layer_norm"] = accesses(layer_norm._sum_forward, "bf16", 4, ADD=True, BIAS=True, ROWS=4, COLUMNS=1024)
sums = {"ADD": True, "SUMS": True, "SPLIT": True, "ROWS": 4, "COLUMNS": 1024}
found["layer_norm gradient"] = accesses(layer_norm._sum_backward, "bf16", 4, **sums)
found["joined"] = accesses(joined_gradient._join, "bf16", 8, ROWS=16, COLUMNS=256, STAGES=3)
row = {"CLASSES": 50257, "COLUMNS": 8192, "KEPT": 6, "LAST": 2048, "LINES": 1024}
found["cross_entropy"] = accesses(loss._cross_entropy, "bf16", 32, GRADIENT=True, **row)
found["scale"] = accesses(loss._scale, "bf16", 8, BLOCK=4096)
for name, kernel, table in (
    ("attention", attention._forward, attention._FORWARD),
    ("attention queries", attention._backward_queries, attention._BACKWARD),
    ("attention keys", attention._backward_keys, attention._BACKWARD),
):
    held, step, warps, stages = table[2][64]
    found[name] = accesses(kernel, "bf16", warps, stages, D=64, HELD=held, STEP=step)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    result = subprocess.run([sys.executable, "-c", COMPILE], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_that_gelu_moves_its_full_blocks_in_accesses_of_16_bytes(found, dtype):
    # 4096 elements over 256 threads: 16 a thread, 4 an access in float32 and 8 in half precision.
    each = 4 if dtype == "fp32" else 2
    assert found[f"gelu {dtype}"] == {"ld.global.v4.b32": each, "st.global.v4.b32": each}
    assert found[f"gelu gradient {dtype}"] == {"ld.global.v4.b32": 2 * each, "st.global.v4.b32": each}


@pytest.mark.parametrize(
    ("name", "load"),
    [
        *((name, "ld.global.v4.b32") for name in ("bias_gelu", "layer_norm", "layer_norm gradient", "cross_entropy")),
        *((name, "cp.async.cg") for name in ("bias_gelu gradient", "joined")),  # ahead of the rows that it computes
    ],
)
def test_that_kernels_over_rows_read_and_write_in_accesses_of_16_bytes(found, name, load):
    assert found[name][load] > 0
    assert found[name]["st.global.v4.b32"] > 0


@pytest.mark.parametrize("name", ["attention", "attention queries", "attention keys"])
def test_that_attention_multiplies_on_the_tensor_cores(found, name):
    assert found[name]["wgmma.mma_async"] > 0
