"""The kernels of a decoding step against the formulas in float64 and against torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from explorer.kernels import decode_linear as linear_module
from explorer.kernels import launch
from explorer.kernels.decode_attention import decode_attention
from explorer.kernels.decode_choice import decode_choice
from explorer.kernels.decode_embedding import decode_embedding
from explorer.kernels.decode_linear import Linear, decode_linear, decode_parts, decode_qkv
from explorer.kernels.decode_residual import decode_residual

# (rows, inputs, outputs): no powers of two, one program and several, inputs that chunks divide and that they do not.
SIZES = [
    *((rows, *size) for rows in (2, 33) for size in ((32, 96), (72, 140), (320, 33), (513, 5))),
    # A program an output here: as many outputs would take the interpreter a second.
    *((1, *size) for size in ((32, 24), (72, 19), (320, 9), (513, 5))),
]


def layer(place, inputs, outputs, *, norm):
    weight = place.randn(outputs, inputs, seed=1, scale=inputs**-0.5)
    bias = place.randn(outputs, seed=2, shift=0.5)
    if not norm:
        return Linear(weight=weight, bias=bias)
    parameters = (place.randn(inputs, seed=3, shift=1.0), place.randn(inputs, seed=4, shift=-0.5), 1e-5)
    return Linear(weight=weight, bias=bias, norm=parameters)


def by_torch(x, linear, dtype, *, gelu=False):
    """The same by torch's operators, in ``dtype``."""
    x, weight = x.to(dtype), linear.weight.to(dtype)
    if linear.norm is not None:
        norm_weight, norm_bias, eps = linear.norm
        x = functional.layer_norm(x, x.shape[-1:], norm_weight.to(dtype), norm_bias.to(dtype), eps)
    if linear.scale is not None:
        weight = weight * linear.scale.to(dtype)[:, None]
    y = functional.linear(x, weight, None if linear.bias is None else linear.bias.to(dtype))
    return functional.gelu(y, approximate="tanh") if gelu else y


def in_int8(linear):
    """The same in int8 with a scale an output."""
    scale = (linear.weight.abs().amax(1) / 127).contiguous()
    rounded = (linear.weight / scale[:, None]).round().to(torch.int8)
    return Linear(weight=rounded, scale=scale, bias=linear.bias, norm=linear.norm)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES, ids=str)
@pytest.mark.parametrize(("norm", "gelu"), [(False, False), (True, False), (True, True)])
def test_that_a_linear_layer_is_as_exact_as_torchs(place, rows, inputs, outputs, norm, gelu, as_exact_as_torch):
    linear = layer(place, inputs, outputs, norm=norm)
    x = place.randn(rows, inputs, seed=5, scale=2, shift=0.5)
    y = torch.empty(rows, outputs, device=place.device, dtype=place.dtype)
    decode_linear(x, linear, y, gelu=gelu)
    as_exact_as_torch(y, by_torch(x, linear, place.dtype, gelu=gelu), by_torch(x, linear, torch.float64, gelu=gelu))


@pytest.mark.parametrize("rows", [1, 5])
def test_that_a_layer_is_added_to_what_is_there_in_float32(place, rows, as_exact_as_torch):
    linear = layer(place, 96, 37, norm=False)
    x = place.randn(rows, 96, seed=5)
    before = place.randn(rows, 37, seed=6).float()
    y = before.clone()
    decode_linear(x, linear, y, add=True)
    exact = before.double() + by_torch(x, linear, torch.float64)
    as_exact_as_torch(y, before + by_torch(x, linear, place.dtype).float(), exact)


@pytest.mark.parametrize("rows", [1, 5])
def test_that_int8_weights_are_scaled_by_output(place, rows, as_exact_as_torch):
    linear = in_int8(layer(place, 96, 37, norm=True))
    x = place.randn(rows, 96, seed=5)
    y = torch.empty(rows, 37, device=place.device, dtype=torch.float32)
    decode_linear(x, linear, y)
    as_exact_as_torch(y, by_torch(x, linear, place.dtype), by_torch(x, linear, torch.float64))


@pytest.mark.parametrize("cast", ["cast", "add", pytest.param("bytes", marks=pytest.mark.gpu)])
def test_that_every_int8_becomes_its_number(place, cast, monkeypatch):
    monkeypatch.setattr(linear_module, "_CAST", cast)
    numbers = torch.arange(-128, 128, device=place.device)
    weight = torch.zeros(256, 16, dtype=torch.int8, device=place.device)
    weight[numbers + 128, numbers % 16] = numbers.to(torch.int8)
    scale = torch.ones(256, dtype=place.dtype, device=place.device)
    y = torch.empty(1, 256, device=place.device, dtype=torch.float32)
    decode_linear(torch.ones(1, 16, device=place.device), Linear(weight=weight, scale=scale), y)
    assert torch.equal(y[0], numbers.float())


GPT2 = [(768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50257)]


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 32])
@pytest.mark.parametrize(("inputs", "outputs"), GPT2, ids=str)
def test_that_the_layers_of_gpt2_are_as_exact_as_torchs(place, rows, inputs, outputs, as_exact_as_torch):
    """Those whose tiles were measured."""
    linear = layer(place, inputs, outputs, norm=inputs < outputs)
    x = place.randn(rows, inputs, seed=5, scale=2, shift=0.5)
    y = torch.empty(rows, outputs, device=place.device, dtype=torch.float32)
    decode_linear(x, linear, y)
    as_exact_as_torch(y, by_torch(x, linear, place.dtype), by_torch(x, linear, torch.float64))


@pytest.mark.parametrize("tiles", linear_module._MEASURED_ROWS.values(), ids=str)
def test_that_measured_tiles_serve_any_size(place, tiles, as_exact_as_torch, monkeypatch):
    monkeypatch.setattr(linear_module, "_rows_tiles", lambda *size, parts: tiles)
    linear = layer(place, 72, 140, norm=False)
    x = place.randn(18, 72, seed=5, scale=2, shift=0.5)
    y = torch.empty(18, 140, device=place.device, dtype=place.dtype)
    decode_linear(x, linear, y)
    as_exact_as_torch(y, by_torch(x, linear, place.dtype), by_torch(x, linear, torch.float64))


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(2, 72, 40), (3, 1100, 40), (17, 600, 33)])
def test_that_shares_of_the_inputs_add_up_to_the_product(place, rows, inputs, outputs, int8, as_exact_as_torch):
    linear = layer(place, inputs, outputs, norm=False)
    linear = in_int8(linear) if int8 else linear
    x = place.randn(rows, inputs, seed=5, scale=2, shift=0.5)
    shares = linear.shares(rows)
    assert (shares > 1) == (inputs > 72)
    parts = torch.empty(shares, rows, outputs, device=place.device, dtype=torch.float32)
    decode_parts(x, linear, parts)
    plain = Linear(weight=linear.weight, scale=linear.scale)  # the bias is added once, where the parts are
    as_exact_as_torch(parts.sum(0), by_torch(x, plain, place.dtype), by_torch(x, plain, torch.float64))


@pytest.mark.parametrize("shares", [0, 1, 5])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("rows", "width"), [(1, 32), (3, 140)])
def test_that_the_residual_stream_is_added_to_and_normed(place, rows, width, shares, bias, norm, as_exact_as_torch):
    x = place.randn(rows, width, seed=1, scale=2, shift=3).float()
    parts = place.randn(shares, rows, width, seed=2, shift=1).float()
    offset = place.randn(width, seed=3, shift=0.5) if bias and shares else None
    weight, shift = place.randn(width, seed=4, shift=1), place.randn(width, seed=5, shift=-0.5)
    normed = torch.empty(rows, width, device=place.device, dtype=place.dtype)

    def reference(dtype):
        stream = x.to(dtype) + parts.to(dtype).sum(0) + (0 if offset is None else offset.to(dtype))
        return stream, functional.layer_norm(stream, (width,), weight.to(dtype), shift.to(dtype), 1e-5)

    torchs, exact = reference(torch.float32), reference(torch.float64)
    result = x.clone()
    decode_residual(
        result, parts if shares else None, offset, (weight, shift, 1e-5) if norm else None, normed if norm else None
    )
    as_exact_as_torch(result, torchs[0], exact[0])
    if shares == 0:
        assert torch.equal(result, x)
    if norm:
        as_exact_as_torch(normed, torchs[1].to(place.dtype), exact[1])


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_that_queries_keys_and_values_go_to_their_places_and_nowhere_else(place, rows, as_exact_as_torch):
    heads, size, slots, newest = 2, 12, 7, 4
    width = heads * size
    linear = layer(place, width, 3 * width, norm=True)
    x = place.randn(rows, width, seed=5)
    queries = torch.empty(rows, width, device=place.device, dtype=place.dtype)
    keys, values = (place.randn(rows, heads, slots, size, seed=seed) for seed in (6, 7))
    before = keys.clone(), values.clone()
    decode_qkv(x, linear, queries, keys, values, torch.tensor([newest], device=place.device))
    exact = by_torch(x, linear, torch.float64).unflatten(1, (3, heads, size))
    torchs = by_torch(x, linear, place.dtype).unflatten(1, (3, heads, size))
    as_exact_as_torch(queries.unflatten(1, (heads, size)), torchs[:, 0], exact[:, 0])
    for index, (cache, old) in enumerate(zip((keys, values), before, strict=True), start=1):
        as_exact_as_torch(cache[:, :, newest], torchs[:, index], exact[:, index])
        untouched = [slot for slot in range(slots) if slot != newest]
        assert torch.equal(cache[:, :, untouched], old[:, :, untouched])


@pytest.mark.parametrize(
    ("lengths", "start", "newest"),
    [
        ([5, 5], 5, 5),
        ([5, 2, 1], 5, 9),
        ([130, 130], 130, 299),
        ([140, 3], 140, 290),
        pytest.param([5, 2, 1] * 23, 5, 9, marks=pytest.mark.gpu),  # more programs than processors
    ],
)
@pytest.mark.parametrize("size", [16, 24, 64])
def test_that_attention_sees_a_rows_own_text_and_no_more(place, lengths, start, newest, size, as_exact_as_torch):
    rows, heads, slots = len(lengths), 2, 300
    q = place.randn(rows, heads * size, seed=1, scale=2)
    keys, values = (place.randn(rows, heads, slots, size, seed=seed) for seed in (2, 3))
    slot = torch.arange(slots)
    seen = torch.stack([(slot < length) | ((slot >= start) & (slot <= newest)) for length in lengths])
    keys[~seen[:, None].expand(-1, heads, -1).to(place.device)] = math.nan  # a slot that is not seen may hold anything
    values[(slot > newest).expand(rows, heads, -1).to(place.device)] = math.nan
    y = torch.empty(rows, heads * size, device=place.device, dtype=place.dtype)
    numbers = (torch.tensor(numbers, device=place.device) for numbers in (lengths, [start], [newest]))
    decode_attention(q, keys, values, *numbers, y)

    def reference(dtype):
        mask = seen[:, None, None].to(place.device)
        k, v = (cache.to(dtype).nan_to_num(0.0) for cache in (keys, values))
        query = q.to(dtype).unflatten(1, (heads, 1, size))
        return functional.scaled_dot_product_attention(query, k, v, attn_mask=mask).flatten(1)

    as_exact_as_torch(y, reference(place.dtype), reference(torch.float64))


@pytest.mark.parametrize("int8", [False, True])
def test_that_the_embedding_is_of_each_rows_newest_token_at_its_own_position(place, int8, as_exact_as_torch):
    tokens = torch.randint(0, 50, (3, 9), generator=torch.Generator().manual_seed(0)).to(place.device)
    lengths, start, newest = (torch.tensor(numbers, device=place.device) for numbers in ([5, 2, 4], [5], [7]))
    table, positions = place.randn(50, 40, seed=1), place.randn(16, 40, seed=2)
    scale = None
    exact_table = table.double()
    if int8:
        scale = (table.abs().amax(1) / 127).contiguous()
        table = (table / scale[:, None]).round().to(torch.int8)
        exact_table = table.double() * scale.double()[:, None]
    x = torch.empty(3, 40, device=place.device, dtype=torch.float32)
    decode_embedding(tokens, lengths, start, newest, table, scale, positions, x)
    where = [7, 4, 6]  # two new tokens after each prompt, and the newest after them
    exact = exact_table[tokens[:, 7]] + positions.double()[where]
    as_exact_as_torch(x, exact_table.float()[tokens[:, 7]] + positions.float()[where], exact)


@pytest.mark.parametrize(("rows", "columns", "limit"), [(1, 50, 50), (3, 1500, 1100), (19, 4097, 4097)])
def test_that_each_rows_likeliest_token_goes_into_the_next_slot(place, rows, columns, limit):
    logits = place.randn(rows, columns, seed=1)
    logits[:, limit:] = 100.0  # tokens that may not be chosen
    logits[0, limit // 2] = logits[0, limit - 1] = 50.0  # the first of equals wins
    tokens = torch.full((rows, 6), -1, device=place.device)
    newest = torch.tensor([3], device=place.device)
    decode_choice(logits, limit, tokens, newest)
    expected = logits[:, :limit].cpu().float().numpy().argmax(1).tolist()
    assert expected[0] == limit // 2
    assert tokens[:, 4].tolist() == expected
    assert (tokens[:, [0, 1, 2, 3, 5]] == -1).all()
    assert newest.tolist() == [4]


def test_that_what_the_kernels_cannot_take_is_refused_with_both_sides(place):
    linear = layer(place, 32, 96, norm=False)
    x = place.randn(2, 32)
    y = torch.empty(2, 96, device=place.device, dtype=place.dtype)
    for call, words in (
        (lambda: Linear(weight=linear.weight.T), "contiguous"),
        (lambda: Linear(weight=linear.weight, bias=place.randn(5)), r"\(5,\).*needs \(96,\)"),
        (lambda: Linear(weight=linear.weight, scale=place.randn(96)), "int8"),
        (lambda: decode_linear(place.randn(2, 31), linear, y), r"\(2, 31\).*\(96, 32\)"),
        (lambda: decode_linear(x, linear, y[:, :95]), r"\(2, 95\).*\(2, 96\)"),
        (lambda: decode_qkv(x, linear, y, y, y, y), "queries"),
        (lambda: decode_parts(x, linear, y[None, :, :95]), r"\(1, 2, 95\).*2 rows.*float32 \(1, 2, 96\)"),
        (lambda: decode_residual(y, x, None, None, None), r"parts.*\(2, 32\).*\(2, 96\)"),
        (lambda: decode_residual(y, y[None].double(), None, None, None), "float64; allowed: torch.float32"),
        (lambda: decode_residual(y, None, None, None, y), "belong together"),
        (lambda: decode_residual(y, None, y[0], None, None), "with parts only"),
        (lambda: decode_choice(y, 97, x.long(), x.long()), "97"),
        (lambda: decode_choice(y, 96, x.long()[:1], x.long()), r"\(1, 32\).*\(2, 96\)"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize(("capability", "early"), [((8, 9), False), ((9, 0), True), ((12, 0), True)])
def test_that_a_kernel_begins_early_where_the_card_can_and_not_in_float32_at_several_rows(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], early: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(launch, "INTERPRETED", False)
    asked = []
    monkeypatch.setattr(linear_module, "run", lambda *args, launch_pdl, **options: asked.append(launch_pdl))
    for rows, dtype in ((1, torch.float32), (1, torch.float16), (2, torch.float16), (2, torch.float32)):
        linear = Linear(weight=torch.zeros(8, 16, dtype=dtype, device=launch.DEVICE))
        x = torch.zeros(rows, 16, dtype=dtype, device=launch.DEVICE)
        decode_linear(x, linear, torch.zeros(rows, 8, device=launch.DEVICE))
    assert asked == [early, early, early, False]
    monkeypatch.delattr(launch.tl.extra.cuda, "gdc_wait")  # an older triton
    assert not launch.dependent(x)
