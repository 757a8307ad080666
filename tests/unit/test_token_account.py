"""A token by part: whose time a kernel's is, what its bytes take at the least, and what bounds it."""

from __future__ import annotations

import pytest

from explorer.results.token_account import Execution, TokenAccount, Work, in_words, part_bytes, part_us

LAYER = ["decode_linear", "decode_attention", "decode_linear", "decode_linear", "decode_linear"]
TOKEN = ["decode_embedding", *LAYER, *LAYER, "decode_linear", "decode_choice_parts", "decode_choice"]
"""Of one row and two layers."""


def one_after_another(names: list[str], us: float, gap_us: float) -> list[Execution]:
    starts = [index * (us + gap_us) for index in range(len(names))]
    return [Execution(name=name, start_us=at, end_us=at + us) for name, at in zip(names, starts, strict=True)]


def test_that_products_are_told_apart_by_their_order_in_each_token() -> None:
    found = part_us(one_after_another(TOKEN * 3, 2.0, 0.5), layers=2, tokens=3)
    per_layer = dict.fromkeys(("qkv", "attend", "project", "up", "down"), 4.0)
    assert found == {"embedding": 2.0, **per_layer, "head": 2.0, "choice": 4.0}


def test_that_norms_of_several_rows_and_kernels_of_torch_have_parts_of_their_own() -> None:
    names = [*TOKEN[:4], "decode_residual", *TOKEN[4:], "void at::native::copy"]
    found = part_us(one_after_another(names, 1.0, 0.0), layers=2, tokens=1)
    assert (found["norm"], found["other"], found["project"], found["head"]) == (1.0, 1.0, 2.0, 1.0)


def test_that_what_waits_for_the_kernel_ahead_is_not_counted_twice() -> None:
    spans = [("decode_embedding", 0, 4), ("decode_linear", 1, 7), ("decode_attention", 5, 6), ("decode_linear", 9, 12)]
    executions = [Execution(name=name, start_us=start, end_us=end) for name, start, end in reversed(spans)]
    found = part_us(executions, layers=1, tokens=1)
    assert found == {"embedding": 4, "qkv": 3, "attend": 0, "project": 3}  # 7 to 9 nothing ran
    assert part_us([executions[1]], layers=1, tokens=1) == {}  # not a token of these kernels


def test_that_bytes_are_counted_once_each() -> None:
    small = Work(rows=1, slots=3, layers=2, width=4, vocabulary=10, weight_bytes=2, number_bytes=2)
    assert part_bytes(small) == {
        "embedding": 4 * (2 + 2 + 4),
        "qkv": 2 * (12 * 4 * 2 + 12 * 2 + 4 * 4 + 12 * 2),
        "attend": 2 * (2 * 3 * 4 * 2 + 2 * 4 * 2),
        "project": 2 * (4 * 4 * 2 + 4 * 2 + 4 * 2 + 2 * 4 * 4),
        "up": 2 * (16 * 4 * 2 + 16 * 2 + 4 * 4 + 16 * 2),
        "down": 2 * (4 * 16 * 2 + 4 * 2 + 16 * 2 + 2 * 4 * 4),
        "head": 10 * 4 * 2 + 4 * 4 + 10 * 4,
        "choice": 10 * 4,
    }


def test_that_gpt2s_token_is_its_weights_and_little_else() -> None:
    gpt2 = {"slots": 64, "layers": 12, "width": 768, "vocabulary": 50257, "number_bytes": 2}
    multiplied = 12 * 12 * 768**2 + 50257 * 768
    half = sum(part_bytes(Work(rows=1, weight_bytes=2, **gpt2)).values())
    assert 2 * multiplied < half < 2.03 * multiplied
    int8 = sum(part_bytes(Work(rows=1, weight_bytes=1, **gpt2)).values())
    assert 1.0 * multiplied < int8 < 1.06 * multiplied
    many = part_bytes(Work(rows=32, weight_bytes=2, **gpt2))
    # The several rows' caches are their own; the weights are read once for all.
    assert many["attend"] == 32 * part_bytes(Work(rows=1, weight_bytes=2, **gpt2))["attend"]
    assert many["norm"] == 32 * 768 * (6 + 24 * 14)
    assert 2 * 768**2 * 12 < many["project"] < 3 * 768**2 * 12


@pytest.mark.parametrize(
    ("token_us", "kernels_us", "ceiling", "words"),
    [
        (10.0, 9.0, 1.0, "bound by bandwidth: bytes 6.0 us, kernels beyond that 3.0, gaps 1.0"),
        (10.0, 9.0, 3.0, "kernel after kernel: bytes 2.0 us, kernels beyond that 7.0, gaps 1.0; furthest"),
        (20.0, 9.0, 3.0, "bound by launches: bytes 2.0 us, kernels beyond that 7.0, gaps 11.0"),
        (20.0, 9.0, None, "not known"),
    ],
)
def test_that_what_takes_most_of_a_token_is_said_to_bound_it(
    token_us: float, kernels_us: float, ceiling: float | None, words: str
) -> None:
    account = TokenAccount(
        token_us=token_us,
        part_us={"qkv": kernels_us - 1.0, "head": 1.0},
        part_bytes={"qkv": 5000, "head": 1000},
        copy_gb_per_s=ceiling,
    )
    assert words in account.bound_by
    lines = in_words(account).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["qkv", "head", "gaps", "all"]
    assert float(lines[-2].split()[1]) == pytest.approx(token_us)
    if ceiling is not None:
        assert lines[1].split()[3:] == [f"{5 / ceiling:.2f}", f"{(kernels_us - 1.0) / (5 / ceiling):.1f}"]
    assert lines[-1] == account.bound_by
