"""kernels/linear_cross_entropy.py against the formula in float64 and against torch's linear and cross entropy."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional
from waits import watched_waits

from explorer.kernels import linear_cross_entropy as file
from explorer.kernels import reference
from explorer.kernels.linear_cross_entropy import linear_cross_entropy
from explorer.optimizations import loss_impl


def torchs(x, weight, target, ignore_index=-100):
    logits = functional.linear(x, weight).float().reshape(-1, weight.shape[0])
    return functional.cross_entropy(logits, target.reshape(-1), ignore_index=ignore_index)


def with_gradients(function, x, weight, target, upstream=1.0, **options):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = function(x, weight, target, **options)
    (loss * upstream).backward()
    return loss.detach(), x.grad, weight.grad


def case(place, rows=(13,), width=24, columns=101, seed=0):
    """x, weight and a target; the logits have a standard deviation of about 2."""
    x = place.randn(*rows, width, seed=seed + 1)
    weight = place.randn(columns, width, seed=seed + 2, scale=2 / math.sqrt(width))
    generator = torch.Generator().manual_seed(seed + 3)
    return x, weight, torch.randint(columns, rows, generator=generator).to(place.device)


def compare(place, as_exact_as_torch, x, weight, target, **options):
    ours = with_gradients(linear_cross_entropy, x, weight, target, **options)
    exact = with_gradients(reference.linear_cross_entropy, x.double(), weight.double(), target, **options)
    by_torch = with_gradients(torchs, x, weight, target, **options)
    assert [t.dtype for t in ours] == [torch.float32, place.dtype, place.dtype]
    for result, theirs, right in zip(ours, by_torch, exact, strict=True):
        as_exact_as_torch(result, theirs, right)


# One row, one column, a vocabulary of one tile to the last column, one beyond it, a shape (B, T). The last has rows
# enough that a chunk's product adds as exactly as the whole one: for 3 rows the CPU's is 4 times worse.
@pytest.mark.parametrize(
    ("rows", "width", "columns"),
    [((1,), 5, 7), ((4,), 8, 1), ((13,), 24, 101), ((2, 9), 16, 8192), ((4, 16), 33, 9003)],
    ids=str,
)
def test_that_the_loss_and_both_gradients_are_as_exact_as_torchs(place, rows, width, columns, as_exact_as_torch):
    compare(place, as_exact_as_torch, *case(place, rows, width, columns))


# Tiles of 64: none, some or all stay in registers; more rows than programs; the last tile full, or of one column.
@pytest.mark.parametrize("kept", [0, 2, 6])
@pytest.mark.parametrize("columns", [65, 320, 331])
def test_that_a_row_of_many_tiles_gives_the_same(place, kept, columns, as_exact_as_torch, monkeypatch):
    monkeypatch.setattr(file, "_COLUMNS", 64)
    monkeypatch.setattr(file, "_KEPT", kept)
    monkeypatch.setattr(file, "_WARPS", 2)
    x, weight, target = case(place, rows=(300,) if place.device == "cuda" else (13,), columns=columns)
    target[3], target[4], target[5] = -100, columns - 1, 0
    compare(place, as_exact_as_torch, x, weight, target)


@pytest.mark.parametrize("limit", [1 << 30, 1, 101 * 4 * 5])
def test_that_any_number_of_chunks_gives_the_same(place, limit, as_exact_as_torch, monkeypatch):
    monkeypatch.setattr(file, "_CHUNK_BYTES", limit)
    compare(place, as_exact_as_torch, *case(place))


def test_that_the_chunks_are_whole_tiles_within_the_limit():
    # T = 1024, GPT-2's padded vocabulary, in two bytes. B = 8: all at once, 786 MiB; B = 64: six alike, 1056 MiB.
    assert file._chunk(8192, 50304, 2) == 8192
    assert file._chunk(65536, 50304, 2) == 11008
    for rows, size in ((65536, 4), (131072, 2), (16384, 2)):
        chunk = file._chunk(rows, 50257, size)
        assert chunk % 128 == 0
        assert chunk * 50257 * size <= file._CHUNK_BYTES + 128 * 50257 * size
    assert [file._chunk(rows, 50257, 2) for rows in (0, 1, 9, 513)] == [1, 1, 9, 640]


def test_that_the_forecast_has_the_limit_of_a_chunk():
    assert loss_impl.CHUNK_BYTES == file._CHUNK_BYTES


def test_that_rows_beyond_the_classes_take_no_part(place, as_exact_as_torch):
    """Random weights in them, so that a logit of theirs would be seen."""
    x, weight, target = case(place, columns=130)
    target %= 101
    loss, dx, dw = with_gradients(linear_cross_entropy, x, weight, target, classes=101)
    exact = with_gradients(reference.linear_cross_entropy, x.double(), weight[:101].double(), target)
    by_torch = with_gradients(torchs, x, weight[:101], target)
    for ours, theirs, right in zip((loss, dx, dw[:101]), by_torch, exact, strict=True):
        as_exact_as_torch(ours, theirs, right)
    assert not dw[101:].any()


def test_that_torch_compile_takes_it_as_a_whole(place):
    """Traced without a break, in its own and under autocast; one number more may differ in its last place."""
    x, weight, target = case(place)

    def plain(x, weight, target, **options):
        return linear_cross_entropy(x * 2, weight, target, **options)

    traced = torch.compile(plain, backend="aot_eager", fullgraph=True, dynamic=False)
    for autocast in (False, place.dtype != torch.float32):
        cast = (x.float(), weight.float()) if autocast else (x, weight)
        with torch.autocast(place.device, dtype=place.dtype, enabled=autocast):
            ours = with_gradients(traced, *cast, target, upstream=3.0, classes=101)
            right = with_gradients(plain, *cast, target, upstream=3.0, classes=101)
        for one, other in zip(ours, right, strict=True):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, rtol=4 * torch.finfo(place.dtype).eps, atol=1e-7)
    torch._dynamo.reset()


def test_that_ignored_targets_count_for_nothing(place, as_exact_as_torch):
    x, weight, target = case(place)
    target[2:7] = -100
    compare(place, as_exact_as_torch, x, weight, target)
    target[target == -100] = 0
    compare(place, as_exact_as_torch, x, weight, target, ignore_index=0)


def test_that_with_every_target_ignored_the_loss_is_nan_and_the_gradients_zero(place):
    x, weight, target = case(place)
    loss, dx, dw = with_gradients(linear_cross_entropy, x, weight, torch.full_like(target, -100))
    assert loss.isnan()
    assert not dx.any()
    assert not dw.any()


def test_that_the_losses_own_gradient_is_applied(place, as_exact_as_torch):
    # 65536 is the first scale of a GradScaler; dz / rows in float16 would hold nothing without it.
    compare(place, as_exact_as_torch, *case(place), upstream=1024.0)
    x, weight, target = case(place)
    loss, dx, dw = with_gradients(linear_cross_entropy, x, weight, target, upstream=0.0)
    assert loss > 0
    assert not dx.any()
    assert not dw.any()


def test_that_float16_keeps_gradients_of_small_shares(place):
    x, weight, target = case(place, rows=(150,), width=4, columns=50)
    exact = with_gradients(reference.linear_cross_entropy, x.double(), weight.double(), target)[2]
    ours = with_gradients(linear_cross_entropy, x, weight, target)[2]
    # Measured: 5e-4 in float16, 4e-3 in bfloat16, of the largest; their unit, dz's and the result's, is 2^-11, 2^-8.
    unit = {torch.float32: 2**-20, torch.float16: 2**-11, torch.bfloat16: 2**-8}[place.dtype]
    assert (ours.double() - exact).abs().max() <= 2 * unit * exact.abs().max()


def test_that_the_loss_is_the_same_without_a_gradient(place):
    x, weight, target = case(place)
    with torch.no_grad():
        loss = linear_cross_entropy(x, weight, target)
    assert not loss.requires_grad
    assert torch.equal(loss, with_gradients(linear_cross_entropy, x, weight, target)[0])


@pytest.mark.parametrize("which", [0, 1])
def test_that_only_the_gradient_that_is_asked_for_is_made(place, which):
    x, weight, target = case(place)
    both = with_gradients(linear_cross_entropy, x, weight, target)[1:]
    inputs = [x, weight]
    inputs[which] = inputs[which].detach().requires_grad_()
    linear_cross_entropy(*inputs, target).backward()
    assert torch.equal(inputs[which].grad, both[which])
    assert inputs[1 - which].grad is None


def test_that_autocast_sets_the_dtype_of_the_products(place):
    if place.dtype == torch.float32:
        pytest.skip("autocast is to half precision")
    x, weight, target = case(place)
    halves = with_gradients(linear_cross_entropy, x, weight, target)
    with torch.autocast(place.device, dtype=place.dtype):
        loss, dx, dw = with_gradients(linear_cross_entropy, x.float(), weight.float(), target)
    assert torch.equal(loss, halves[0])
    assert (dx.dtype, dw.dtype) == (torch.float32, torch.float32)
    assert torch.equal(dw.to(place.dtype), halves[2])
    torch.testing.assert_close(dx.to(place.dtype), halves[1], rtol=2**-7, atol=0)


def test_that_extreme_logits_give_the_right_loss(place):
    weight = torch.eye(3, device=place.device, dtype=place.dtype)
    x = torch.tensor([[1e4, 0, 0], [-1e4, -1e4, -1e4], [0, -math.inf, 0]], device=place.device, dtype=place.dtype)
    losses = [0.0, math.log(3), math.log(2)]
    for row, loss in zip(x[:2], losses, strict=False):
        found = linear_cross_entropy(row, weight, torch.tensor(0, device=place.device))
        assert found.item() == pytest.approx(loss, abs=1e-3)
    # -inf in a logit: through the weight alone (0 * inf is NaN).
    only = torch.tensor([[1.0]], device=place.device, dtype=place.dtype)
    column = torch.tensor([[0.0], [-math.inf], [0.0]], device=place.device, dtype=place.dtype)
    zero = torch.zeros(1, dtype=torch.int64, device=place.device)
    assert linear_cross_entropy(only, column, zero).item() == pytest.approx(losses[2], rel=1e-6)
    assert linear_cross_entropy(only, column, zero + 1).item() == math.inf
    assert linear_cross_entropy(only * math.nan, column, zero).isnan()


@pytest.mark.parametrize("bad", [101, -1, 2**40])
def test_that_a_target_outside_of_the_vocabulary_gives_nan_and_not_a_wrong_number(place, bad):
    x, weight, target = case(place)
    target[3] = bad
    loss, dx, _ = with_gradients(linear_cross_entropy, x, weight, target)
    assert loss.isnan()
    assert dx.isnan().any(1).nonzero().flatten().tolist() == [3]


def test_that_strides_do_not_matter(place):
    x, weight, target = case(place, rows=(6, 4))
    turned = x.transpose(0, 1), weight.t().contiguous().t(), target.t()
    straight = [tensor.contiguous() for tensor in turned]
    for a, b in zip(*(with_gradients(linear_cross_entropy, *t) for t in (turned, straight)), strict=True):
        # The product of another layout may add in another order.
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-6)


def test_that_a_second_backward_is_refused(place):
    x, weight, target = case(place)
    loss = linear_cross_entropy(x.requires_grad_(), weight, target)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated once"):
        loss.backward()


def test_that_what_does_not_fit_is_refused_with_both_sides(place):
    x, weight, target = case(place)
    with pytest.raises(ValueError, match=r"weight is \(101, 23\); x of \(13, 24\) needs \(V, 24\)"):
        linear_cross_entropy(x, weight[:, 1:], target)
    with pytest.raises(ValueError, match=r"target is \(12,\) of torch.int64; x of \(13, 24\) needs \(13,\)"):
        linear_cross_entropy(x, weight, target[1:])
    with pytest.raises(ValueError, match=r"target is \(13,\) of torch.int32; .* of torch.int64"):
        linear_cross_entropy(x, weight, target.int())
    with pytest.raises(ValueError, match=r"weight is torch.float64; allowed"):
        linear_cross_entropy(x, weight.double(), target)
    with pytest.raises(ValueError, match=r"classes is 102; weight of \(101, 24\) allows 1 to 101"):
        linear_cross_entropy(x, weight, target, classes=102)
    other = torch.float16 if place.dtype == torch.float32 else torch.float32
    with pytest.raises(ValueError, match=f"weight is {other}; x is {place.dtype}"):
        linear_cross_entropy(x, weight.to(other), target)


@pytest.mark.gpu
def test_that_the_peak_is_a_quarter_of_the_plain_ones():
    x = torch.randn(8192, 768, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(50304, 768, device="cuda", dtype=torch.bfloat16) / 28
    target = torch.randint(50304, (8192,), device="cuda")
    peaks = []
    for function in (linear_cross_entropy, torchs):
        with_gradients(function, x, weight, target)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with_gradients(function, x, weight, target)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[0] * 4 <= peaks[1], peaks


@pytest.mark.gpu
def test_that_a_call_does_not_synchronise():
    x = torch.randn(300, 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn(500, 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
    target = torch.randint(500, (300,), device="cuda")
    linear_cross_entropy(x, weight, target).backward()
    with watched_waits("error"):
        linear_cross_entropy(x, weight, target).backward()
