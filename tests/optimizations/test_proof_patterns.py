"""What toggles read out of hand-made profiles, with kernel names as profilers show them on an H200."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from explorer.optimizations import attention, decoder, fused_gelu, registry
from explorer.results.proof import Kernel, Profile, Tally, listed, short_name

LAMBDA = "::{lambda()#1}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, float)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"
BASE = "(at::TensorIteratorBase&)" + LAMBDA
ANON = "at::native::(anonymous namespace)"
LISTS = f"void {ANON}::multi_tensor_apply_kernel<{ANON}::"
NAMES = {
    "flash": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>(int)",
    "flash split": "void pytorch_flash::flash_fwd_splitkv_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>(int)",
    "flash combine": "void pytorch_flash::flash_fwd_splitkv_combine_kernel<pytorch_flash::Traits<64>>(int)",
    "flash backward": "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits<64>>(int)",
    "efficient": "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
    "efficient backward": "fmha_cutlassB_bf16_aligned_128x64_k64_sm80(PyTorchMemEffAttention::Kernel<float>::Params)",
    "cudnn": "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
    "cudnn backward": "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x1x1_kernel0_0",
    "triton": "attention_forward",
    "torch gelu": f"{ELEMENTWISE}GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType){LAMBDA}",
    "torch gelu backward": f"{ELEMENTWISE}GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)"
    + LAMBDA,
    "tanh": f"{ELEMENTWISE}tanh_kernel_cuda{BASE}",
    "tanh backward": f"{ELEMENTWISE}tanh_backward_kernel_cuda{BASE}",
    "triton gelu": "gelu_forward",
    "triton gelu backward": "gelu_backward",
    "triton gelu with bias": "bias_gelu_forward",
    "triton gelu with bias backward": "bias_gelu_backward",
    "joined": "joined_gradient",
    "triton loss": "cross_entropy",
    "triton linear": "decode_linear",
    "triton decode attention": "decode_attention",
    "triton residual": "decode_residual",
    "triton norm": "layer_norm_forward",
    "triton norm backward": "layer_norm_backward",
    "norm with sums": "residual_norm_forward",
    "norm with sums backward": "residual_norm_backward",
    "foreach": f"{LISTS}TensorListScalarListMetadata<float, 4>, {ANON}::PointwiseOpScalarListFunctor<float, 4>>",
    "foreach norm": f"{LISTS}TensorListMetadata<1>, {ANON}::LpNormFunctor<float, 1>>",
    "fused adamw": f"{LISTS}FusedOptimizerTensorListMetadata<4>, {ANON}::FusedAdamMathFunctor<float, 4>>",
    "bf16": "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNT",
    "tf32": "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel__5x_cublas",
    "tf32 cutlass": "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)",
    "fp32": "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_kernel__5x_cublas",
    "fp32 cutlass": "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)",
    "fp32 cublas": "ampere_sgemm_128x64_nn",
}


def made(*kernels: str | tuple[str, int], **fields: Any) -> Profile:
    """A training step of two blocks in which ``kernels`` (keys of NAMES) ran, twice each or as often as said."""
    counts = [(kernel, 2) if isinstance(kernel, str) else kernel for kernel in kernels]
    values: dict[str, Any] = {
        "device": "cuda",
        "workload": "train",
        "steps": 1,
        "step_ms": 10.0,
        "kernels": tuple(Kernel(name=NAMES[key], count=count, total_us=5.0 * count) for key, count in counts),
        "operators": (),
        "products": (Tally(op="addmm", dtype="float32", count=8),),
        "attention_softmax": (),
        "block_forwards": (1, 1),
        "launches": 100,
        "busy_ms": 8.0,
    }
    return Profile(**(values | fields))


def shown(name: str, profile: Profile) -> set[str]:
    return {level for level, judge in registry.by_name(name).proof.items() if judge(profile).shown}


SOFTMAX = (Tally(op="_softmax", dtype="float32", count=2),)
HALF_SOFTMAX = (Tally(op="_softmax", dtype="bfloat16", count=2),)
MATH = (("aten::_scaled_dot_product_attention_math", 2),)


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        pytest.param(made("flash", "flash backward"), {"flash", "sdpa", "causal"}, id="flash"),
        pytest.param(made("flash split", "flash combine"), {"flash", "sdpa", "causal"}, id="flash, split keys"),
        pytest.param(made(("flash combine", 9)), set(), id="flash, only the combining kernel"),
        pytest.param(made("efficient", "efficient backward"), {"efficient", "sdpa", "causal"}, id="efficient"),
        pytest.param(made("cudnn", "cudnn backward"), {"cudnn", "sdpa", "causal"}, id="cudnn"),
        pytest.param(made("cudnn", attention_masks=2), {"cudnn", "sdpa"}, id="cudnn, given a mask"),
        pytest.param(made("triton"), {"triton"}, id="triton"),
        pytest.param(made(("cudnn backward", 9)), set(), id="cudnn, only backward"),
        pytest.param(made(("flash", 1)), set(), id="one of two blocks"),
        pytest.param(made(("flash", 1), ("efficient", 1)), {"sdpa", "causal"}, id="a kernel each"),
        pytest.param(made("flash", attention_softmax=SOFTMAX), set(), id="fused and written out"),
        pytest.param(made(attention_softmax=SOFTMAX), {"naive"}, id="naive"),
        pytest.param(made(attention_softmax=HALF_SOFTMAX), {"naive_half"}, id="naive, half"),
        pytest.param(
            made(attention_softmax=HALF_SOFTMAX, workload="generate"), {"naive", "naive_half"}, id="naive, generation"
        ),
        pytest.param(made(attention_softmax=SOFTMAX, operators=MATH), {"math"}, id="math"),
        pytest.param(made(), set(), id="nothing"),
        pytest.param(made("flash", block_forwards=()), set(), id="no blocks"),
    ],
)
def test_that_attention_is_known_by_its_kernels(profile: Profile, levels: set[str]) -> None:
    assert shown("attention", profile) == levels


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        pytest.param(made("torch gelu", "torch gelu backward"), {"torch"}, id="torch"),
        pytest.param(made("triton gelu", "triton gelu backward"), {"triton"}, id="triton"),
        pytest.param(
            made("triton gelu with bias", "triton gelu with bias backward"), {"triton_bias"}, id="triton with bias"
        ),
        pytest.param(made("triton gelu with bias"), set(), id="triton with bias, no backward"),
        pytest.param(made("tanh", "tanh backward"), {"hf"}, id="unfused"),
        pytest.param(made("triton gelu"), set(), id="triton, no backward"),
        pytest.param(made("triton gelu", workload="generate"), {"triton"}, id="triton, generation"),
        pytest.param(made(("torch gelu", 1), "torch gelu backward"), set(), id="one of two blocks"),
        pytest.param(made("torch gelu", "torch gelu backward", "tanh"), set(), id="two at once"),
        pytest.param(made(), set(), id="nothing"),
    ],
)
def test_that_gelu_is_known_by_its_kernels(profile: Profile, levels: set[str]) -> None:
    assert shown("gelu", profile) == levels


BF16 = (Tally(op="addmm", dtype="bfloat16", count=8), Tally(op="bmm", dtype="float32", count=4))
FP16 = (Tally(op="mm", dtype="float16", count=8),)


def norms(dtype: str) -> tuple[Tally, ...]:
    return (Tally(op="native_layer_norm", dtype=dtype, count=5),)


MIXED = (Tally(op="addmm", dtype="bfloat16", count=7), Tally(op="mm", dtype="float32", count=1))
UNSCALED = (("aten::_amp_foreach_non_finite_check_and_unscale_", 1),)


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        pytest.param(made("fp32", "fp32 cutlass", "fp32 cublas"), {"fp32"}, id="fp32"),
        pytest.param(made("tf32", "tf32 cutlass", tf32_allowed=True), {"tf32"}, id="tf32"),
        pytest.param(made(("tf32", 9), ("fp32", 2), tf32_allowed=True), {"tf32"}, id="tf32 but for an odd shape"),
        pytest.param(made("fp32", tf32_allowed=True), set(), id="allowed and not done"),
        pytest.param(made("tf32"), set(), id="done and not allowed"),
        pytest.param(made(tf32_allowed=True), {"tf32"}, id="names that tell nothing"),
        pytest.param(made("bf16", products=BF16), {"bf16"}, id="bf16, math attention in float32"),
        pytest.param(made("bf16", products=MIXED), set(), id="one product not cast"),
        pytest.param(made(products=FP16, operators=UNSCALED), {"fp16"}, id="fp16"),
        pytest.param(made(products=FP16), set(), id="fp16 without a scaler"),
        pytest.param(made(products=FP16, norms=norms("float32"), workload="generate"), {"fp16"}, id="generation"),
        pytest.param(made(products=FP16, norms=norms("float16"), workload="generate"), {"fp32"}, id="fp16 weights"),
        pytest.param(made(products=()), set(), id="no products"),
    ],
)
def test_that_precision_is_known_by_its_products(profile: Profile, levels: set[str]) -> None:
    assert shown("precision", profile) == levels


LOOKED_UP = (("aten::embedding", 2),)
HALF_LOOKED_UP = (("aten::embedding", 1),)


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        pytest.param(made(norms=norms("float32"), operators=LOOKED_UP), {"fp32"}, id="fp32"),
        pytest.param(made(products=FP16, norms=norms("float32"), operators=LOOKED_UP), {"fp32"}, id="autocast"),
        pytest.param(made(products=FP16, norms=norms("float16"), operators=LOOKED_UP), {"fp16"}, id="fp16"),
        pytest.param(made(products=BF16, norms=norms("bfloat16"), operators=LOOKED_UP), {"bf16"}, id="bf16"),
        pytest.param(made(products=BF16, norms=norms("bfloat16"), operators=HALF_LOOKED_UP), {"int8"}, id="int8"),
        pytest.param(made(products=MIXED, norms=norms("bfloat16"), operators=LOOKED_UP), set(), id="one not cast"),
        pytest.param(made(operators=LOOKED_UP), set(), id="no norms"),
    ],
)
def test_that_the_format_of_the_weights_is_known_by_norms_and_embeddings(profile: Profile, levels: set[str]) -> None:
    assert shown("weight_dtype", dataclasses.replace(profile, workload="generate")) == levels


@pytest.mark.parametrize(
    ("launches", "levels"), [(12, {"off"}), (11, set()), (10, {"on"}), (1, {"on"}), (None, {"off"})]
)
def test_that_a_graph_is_known_by_launches_that_bear_many_kernels(launches: int | None, levels: set[str]) -> None:
    """Twelve kernels in two blocks: one call saved for each block is the least that a graph of a token saves."""
    assert shown("decode_graph", made(("tanh", 12), workload="generate", launches=launches)) == levels


def decoded(*kernels: tuple[str, int], operators: tuple[tuple[str, int], ...] = (), passes: int = 1) -> Profile:
    """A prefill and four tokens after it in a model of two blocks, whose modules ran ``passes`` times."""
    fields = {"steps": 5, "block_forwards": (passes, passes), "operators": operators}
    return made(*kernels, workload="generate", **fields)


ONE_ROW = (("triton linear", 4 * 8 + 4), ("triton decode attention", 8))
SEVERAL_ROWS = (*ONE_ROW, ("triton residual", 2 * 8 + 4))


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        pytest.param(decoded(("bf16", 40), passes=5), {"hf"}, id="transformers"),
        pytest.param(decoded(("bf16", 40), operators=((decoder.SPLIT, 10),), passes=5), {"torch"}, id="plain torch"),
        pytest.param(decoded(*ONE_ROW, operators=((decoder.SPLIT, 2),)), {"triton"}, id="one row"),
        pytest.param(decoded(*SEVERAL_ROWS, operators=((decoder.SPLIT, 2),)), {"triton"}, id="several rows"),
        pytest.param(decoded(("triton linear", 31), ("triton decode attention", 8)), set(), id="a product is missing"),
        pytest.param(decoded(("triton linear", 36), ("triton decode attention", 7)), set(), id="attention is missing"),
    ],
)
def test_that_a_decoder_is_known_by_how_it_takes_queries_apart_and_by_its_kernels(
    profile: Profile, levels: set[str]
) -> None:
    assert shown("decoder", profile) == levels


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        pytest.param(made("foreach", "foreach norm"), {"foreach"}, id="foreach"),
        pytest.param(made("fused adamw", "foreach norm"), {"fused"}, id="fused"),
        pytest.param(
            made("fused adamw", operators=(("aten::_foreach_mul_", 1),)), {"fused"}, id="fused, clipped before"
        ),
        pytest.param(made("fused adamw", operators=(("aten::clamp_min", 1),)), {"fused_clip"}, id="clipped in it"),
        pytest.param(
            made("fused adamw", operators=(("aten::clamp_min", 1), ("aten::_foreach_mul_", 1))),
            set(),
            id="clipped twice",
        ),
        pytest.param(made("foreach norm"), set(), id="clipping alone"),
        pytest.param(made("fused adamw", "foreach"), set(), id="both"),
    ],
)
def test_that_the_optimizer_is_known_by_the_kernel_that_changes_the_weights(profile: Profile, levels: set[str]) -> None:
    assert shown("optimizer", profile) == levels


DRAWN = (("aten::native_dropout", 25),)


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        pytest.param(made(operators=DRAWN), {"gpt2"}, id="masks"),
        pytest.param(made("flash", attention_dropout=0.1), {"gpt2"}, id="only within fused attention"),
        pytest.param(made("flash"), {"off"}, id="none"),
    ],
)
def test_that_dropout_is_known_by_its_masks(profile: Profile, levels: set[str]) -> None:
    assert shown("dropout", profile) == levels


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        (made(operators=(("aten::_log_softmax", 1), ("aten::nll_loss_forward", 1))), {"hf"}),
        (made(operators=(("aten::_log_softmax", 4),)), {"chunked"}),
        (made("triton loss"), {"fused"}),
        (made("triton loss", operators=(("aten::_log_softmax", 4),)), set()),
        (made("triton gelu"), set()),
        (made(), set()),
    ],
    ids=lambda value: "-".join(sorted(value)) or "none" if isinstance(value, set) else "",
)
def test_that_the_loss_is_known_by_who_makes_its_softmax(profile: Profile, levels: set[str]) -> None:
    assert shown("loss_impl", profile) == levels


@pytest.mark.parametrize(
    ("profile", "levels"),
    [
        (made(operators=(("aten::native_layer_norm", 5),)), {"torch"}),
        (made(("triton norm", 5), ("triton norm backward", 5)), {"triton"}),
        (made(("triton norm", 5), ("triton norm backward", 4)), set()),
        (made(("triton norm", 4), ("triton norm backward", 5), operators=(("aten::native_layer_norm", 1),)), set()),
        (made(operators=(("aten::native_layer_norm", 4),)), set()),
        (
            made(
                ("triton norm", 3),
                ("triton norm backward", 1),
                ("norm with sums", 2),
                ("norm with sums backward", 4),
            ),
            {"residual"},
        ),
        (made(("triton norm", 3), ("triton norm backward", 1), ("norm with sums", 2)), set()),
        (made(("triton norm", 5), ("triton norm backward", 5), ("norm with sums", 2)), set()),
    ],
    ids=lambda value: "-".join(sorted(value)) or "none" if isinstance(value, set) else "",
)
def test_that_norms_are_known_by_their_kernels(profile: Profile, levels: set[str]) -> None:
    assert shown("layer_norm", profile) == levels


@pytest.mark.parametrize(
    ("adds", "levels"),
    [
        ([("float32", 4)], {"fp32"}),
        ([("bfloat16", 9)], {"bf16"}),
        ([("bfloat16", 8), ("float32", 1)], set()),
        ([("bfloat16", 3)], set()),
        ([], set()),
    ],
)
def test_that_the_stream_is_known_by_its_sums(adds: list[tuple[str, int]], levels: set[str]) -> None:
    tallies = tuple(Tally(op="add", dtype=dtype, count=count) for dtype, count in adds)
    assert shown("residual", made(residual_adds=tallies)) == levels


def test_that_sums_within_norms_count_as_sums_of_the_streams_format() -> None:
    half = (Tally(op="add", dtype="bfloat16", count=2),)
    assert shown("residual", made("norm with sums", residual_adds=half)) == {"bf16"}
    assert shown("residual", made(residual_adds=half)) == set()
    assert shown("residual", made(("norm with sums", 9))) == set()


@pytest.mark.parametrize(
    ("profile", "levels"), [(made("joined"), {"joined"}), (made(), {"torch"}), (made(("joined", 1)), set())]
)
def test_that_joined_gradients_are_known_by_their_kernel(profile: Profile, levels: set[str]) -> None:
    assert shown("qkv_gradient", profile) == levels


@pytest.mark.parametrize(("products", "levels"), [(16, {"fp8"}), (0, {"autocast"}), (8, set()), (15, set())])
def test_that_float8_is_known_by_its_products(products: int, levels: set[str]) -> None:
    operators = (("aten::_scaled_mm", products),) if products else ()
    assert shown("linear", made(operators=operators)) == levels


@pytest.mark.parametrize(
    ("columns", "levels"), [(50257, {"off"}), (50304, {"128"}), (3072, set()), (50432, set()), (0, set())]
)
def test_that_a_padded_vocabulary_is_known_by_the_heads_columns(columns: int, levels: set[str]) -> None:
    assert shown("vocab_padding", made(widest_product=columns, vocabulary=50257)) == levels


@pytest.mark.parametrize(
    ("forwards", "levels"),
    [
        ((1, 1, 1, 1), {"off"}),
        ((2, 2, 2, 2), {"all"}),
        ((2, 1, 2, 1), {"alternate"}),
        ((1, 2, 1, 2), set()),
        ((2, 2, 2, 1), set()),
        ((), set()),
    ],
)
def test_that_checkpointing_is_known_by_the_blocks_that_ran_again(forwards: tuple[int, ...], levels: set[str]) -> None:
    assert shown("checkpointing", made(block_forwards=forwards)) == levels


def test_that_kernels_are_named_in_one_short_line() -> None:
    names = {key: short_name(name) for key, name in NAMES.items()}
    assert names["flash"] == "flash_fwd_kernel"
    assert names["efficient"] == "fmha_cutlassF_bf16_aligned_64x64_rf_sm80"
    assert names["torch gelu"] == "GeluCUDAKernelImpl"
    assert names["tanh"] == "tanh_kernel_cuda"
    assert names["bf16"] == NAMES["bf16"]
    assert names["tf32 cutlass"] == "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4"
    assert short_name("aten::_softmax") == "aten::_softmax"
    add = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    )
    assert short_name(add) == "vectorized_elementwise_kernel[CUDAFunctor_add]"
    drop = "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4>(int)"
    assert short_name(drop) == "fused_dropout_kernel_vec"
    assert listed(made(("flash", 1), "efficient", "bf16", "fp32").kernels).endswith("1 more")


def test_that_the_names_of_the_triton_kernels_are_the_ones_looked_for() -> None:

    from explorer.kernels import attention as attention_kernel
    from explorer.kernels import gelu

    for module, kind, pattern in (
        (gelu, "gelu", fused_gelu.FORWARD["triton"]),
        (gelu, "gelu", fused_gelu.BACKWARD["triton"]),
        (attention_kernel, "attention", attention.FUSED["triton"]),
    ):
        name = pattern.strip("^$")
        source = Path(module.__file__).read_text()
        assert re.search(rf'repr=lambda specialization: "{name}"\)\ndef _{name.removeprefix(f"{kind}_")}\(', source)
