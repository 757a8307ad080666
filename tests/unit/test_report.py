"""The report: it stands alone, says what was measured, and runs nothing that a label might hold."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from kept_runs import TOGGLES, begun, compared

from explorer.config import RunConfig
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.log import RunLog, RunRecord
from explorer.results.report import report, write_report
from explorer.results.sample import Sample, Segment

VOID = {"meta", "br", "hr"}
FETCHES = {"script", "link", "img", "iframe", "object", "embed", "image", "use", "audio", "video", "base", "form"}
EVIL = "</title><script>alert('x')</script><img src=x onerror=alert(1)>&amp;\""


class Page(HTMLParser):
    """Reads a page, and sees that each element that is opened is closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"{tag} was never opened"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self._open[-1] != "style":
            self.words.append(data.strip())


def made(number: int, step_ms: float, *, model: str = "gpt2", name: str = "NVIDIA H200") -> RunRecord:
    """A run of 100 steps of 1000 tokens, half of them with bf16, in which they are twice as fast."""
    log = RunLog()
    gpu = DeviceInfo(id="cuda:0", kind="cuda", name=name, total_memory_bytes=2**37, uuid="GPU-1")
    log.set_environment(Environment(devices=(gpu,), platform="Linux", python="3.12", explorer="0.1.0", torch="2.11"))
    config = RunConfig(model=model, device="cuda:0")
    record = log.begin_run(number, config)
    time_s = 0.0
    for index, took_ms in enumerate((step_ms, step_ms / 2)):
        changes = ("precision fp32 -> bf16",) if index else ()
        segment = Segment(index=index, first_step=50 * index, changes=changes, started_at="2026")
        log.begin_segment(number, config, segment)
        config = config.with_level("precision", "bf16")
        for step in range(50 * index, 50 * (index + 1)):
            time_s += took_ms / 1e3
            sample = Sample(
                step=step,
                segment=index,
                phase="steady",
                time_s=time_s,
                tokens=1000,
                step_ms=took_ms,
                loss=10.0 - step / 100,
                peak_allocated_bytes=(3 - index) * 2**30,
            )
            log.append(number, [sample])
    log.end(number, "completed")
    return record


def cells(page: str) -> list[list[str]]:
    """The rows of its tables, without markup."""
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    return [[re.sub(r"<[^>]*>", "", c) for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def charts(page: str) -> list[ElementTree.Element]:
    found = re.findall(r'<svg [^>]*viewBox="0 0 720 240".*?</svg>', page, re.DOTALL)
    return [ElementTree.fromstring(text) for text in found]


def test_that_it_stands_alone_and_is_well_formed() -> None:
    _, first = begun(1)
    _, second = begun(2)
    text = report([first, second, made(3, 20.0)], [compared(first, second)], toggles=TOGGLES)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & FETCHES
    names = {name for _, attributes in page.tags for name in attributes}
    assert not names & {"src", "href", "srcset", "xlink:href", "action", "background"}
    assert not {name for name in names if name.startswith("on")}
    without_names_of_xml = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import", without_names_of_xml)
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_that_medians_memory_settings_and_machine_stand_in_it() -> None:
    page = report([made(3, 20.0)], [], toggles=TOGGLES)
    rows = {row[1]: row for row in cells(page) if len(row) == 15}
    assert rows["3.1"][2:] == [
        *("fp32 baseline", "train", "gpt2", "8 × 1024", "50", "50,000", "50,000 – 50,000"),
        *("20.00", "20.00 – 20.00", "3.00", "–", "10.000 → 9.510", "changed"),
    ]
    assert rows["3.2"][2:] == [
        *("+ precision bf16", "train", "gpt2", "8 × 1024", "50", "100,000", "100,000 – 100,000"),
        *("10.00", "10.00 – 10.00", "2.00", "–", "9.500 → 9.010", "completed"),
    ]
    assert ["precision", "fp32", "bf16"] in cells(page)
    assert '<td class="changed">bf16</td>' in page
    assert ["lr", "5e-05", "5e-05"] in cells(page)
    assert ["torch", "2.11"] in cells(page)
    assert ["device", "NVIDIA H200 (cuda:0), 128.0 GiB"] in cells(page)
    assert "CUDA events" in page, "how it was measured"


def test_that_curves_lie_at_the_ticks_of_their_values() -> None:
    throughput, memory, loss, step_time = charts(report([made(3, 20.0)], [], toggles=TOGGLES))
    svg = "{http://www.w3.org/2000/svg}"
    for chart, before, after in ((throughput, 50_000, 100_000), (step_time, 20, 10)):
        labels = [text for text in chart.iter(f"{svg}text") if text.get("text-anchor") == "end"]
        ticks = [(float((text.text or "").replace("k", "e3")), float(text.get("y", "")) - 4) for text in labels]
        (low, low_px), (high, high_px) = min(ticks), max(ticks)
        (path,) = chart.iter(f"{svg}path")
        points = [tuple(map(float, p.split())) for p in re.split("[ML]", path.get("d", ""))[1:]]
        for point, value in ((points[0], before), (points[-1], after)):
            assert point[1] == pytest.approx(low_px + (high_px - low_px) * (value - low) / (high - low), abs=0.2)
        assert points[-1][0] > points[0][0]
    assert "GiB" in {text.text for text in memory.iter(f"{svg}text")}
    first, *_, last = re.split("[ML]", next(loss.iter(f"{svg}path")).get("d", ""))[1:]
    assert float(first.split()[1]) < float(last.split()[1]), "the loss falls: down is more in SVG"


def test_that_each_chart_marks_where_a_setting_changed() -> None:
    svg = "{http://www.w3.org/2000/svg}"
    throughput, *others = charts(report([made(3, 20.0)], [], toggles=TOGGLES))
    for chart in (throughput, *others):
        (mark,) = [line for line in chart.iter(f"{svg}line") if line.find(f"{svg}title") is not None]
        assert mark.findtext(f"{svg}title") == "precision fp32 → bf16"
        # Fifty steps of 20 ms, then fifty of 10: two thirds of the way between the ticks of 0 and 1.5 s.
        labels = {t.text: float(t.get("x", "")) for t in chart.iter(f"{svg}text") if t.get("text-anchor") == "middle"}
        assert float(mark.get("x1", "")) == float(mark.get("x2", "")) == pytest.approx(labels["1"], abs=0.2)
        shown = [text.text for text in chart.iter(f"{svg}text")]
        assert ("precision fp32 → bf16" in shown) == (chart is throughput)
    both = charts(report([made(3, 20.0), made(4, 20.0)], [], toggles=TOGGLES))[0]
    words = [text for text in both.iter(f"{svg}text") if "precision" in (text.text or "")]
    assert [text.text for text in words] == ["3: precision fp32 → bf16", "4: precision fp32 → bf16"]
    assert len({text.get("y") for text in words}) == 2, "one below the other"
    assert len({text.get("fill") for text in words}) == 2, "of their runs' colours"


def test_that_a_comparison_is_told_with_its_verdict_and_interval() -> None:
    _, first = begun(1)
    _, second = begun(2)
    comparison = compared(first, second)
    result = comparison.result()
    assert result is not None
    page = report([first, second], [comparison], toggles=TOGGLES)
    i = result.interval
    words = f"bf16 against fp32: faster, {i.ratio:.3f}x the speed (95% interval {i.low:.3f} to {i.high:.3f})."
    assert words in Page(page).words
    assert ["A/A floor", "0.50% (assumed)"] in cells(page)
    assert ["ms/step, median of blocks: A", f"{result.a_step_ms:.2f}"] in cells(page)
    assert ["parity", "kept"] in cells(page)


def test_that_no_label_can_put_markup_into_it() -> None:
    record = made(1, 20.0, model=EVIL, name=EVIL)
    record.reference = RunConfig(prompt=EVIL)
    record.notes.append(EVIL)
    record.problem = EVIL
    record.pieces.append(EVIL)
    other = made(2, 10.0)
    comparison = ComparisonRecord(
        run_uids=(record.uid, other.uid), names=(EVIL, EVIL), floor=0.005, floor_measured=True, beside={"parity": EVIL}
    )
    whole = compared(record, other)
    comparison.blocks = whole.blocks
    text = report([record, other], [comparison], toggles=TOGGLES)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & FETCHES
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert sum("alert('x')" in words for words in page.words) >= 4, "it is shown as it was written"
    for chart in charts(text):
        assert chart.tag.endswith("svg")


def test_that_runs_without_a_step_are_left_out_and_none_is_refused(tmp_path: Path) -> None:
    log = RunLog()
    empty = log.begin_run(9, RunConfig())
    assert "<td>9.1</td>" not in report([empty, made(3, 20.0)], [], toggles=TOGGLES)
    with pytest.raises(ValueError, match="nothing to report"):
        write_report(tmp_path / "out.html", [empty], [], toggles=TOGGLES)
    assert not (tmp_path / "out.html").exists()
