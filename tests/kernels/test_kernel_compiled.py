"""What Triton makes of the kernels for an sm_90 card, seen without one: it compiles ahead of time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Runs in a process of its own: in this one the kernels are interpreted.
COMPILE = """
import collections, json, re
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from explorer.kernels import gelu

def accesses(kernel, dtype, block, warps):
    pointers = [name for name in kernel.arg_names if name.endswith("_ptr")]
    signature = {name: f"*{dtype}" for name in pointers} | {"n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(kernel.arg_names.index("BLOCK"),): block},
        attrs={(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in pointers},
    )
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    return collections.Counter(re.findall(r"(?:ld|st)\\.global\\.v4\\.b32", compiled.asm["ptx"]))

print(json.dumps({
    f"{name} {dtype}": accesses(kernel, dtype, 4096, 8)
    for name, kernel in (("forward", gelu._forward), ("backward", gelu._backward))
    for dtype in ("fp32", "bf16")
}))
"""


@pytest.fixture(scope="module")
def accesses(tmp_path_factory):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    result = subprocess.run([sys.executable, "-c", COMPILE], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_that_gelu_moves_its_full_blocks_in_accesses_of_16_bytes(accesses, dtype):
    # 4096 elements over 256 threads: 16 a thread, 4 an access in float32 and 8 in half precision.
    each = 4 if dtype == "fp32" else 2
    assert accesses[f"forward {dtype}"] == {"ld.global.v4.b32": each, "st.global.v4.b32": each}
    assert accesses[f"backward {dtype}"] == {"ld.global.v4.b32": 2 * each, "st.global.v4.b32": each}
