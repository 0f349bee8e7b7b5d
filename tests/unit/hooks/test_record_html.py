from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import (
    Batches,
    PeakMemory,
    Phase,
    Record,
    Series,
    Usage,
)
from weigh.render.record_html import render_html
from weigh.units import GIB, MIB

_VOID = {"polyline"}
_text = st.text(max_size=20)
_seconds = st.floats(0, 1e9)
_size = st.integers(0, 1 << 62)
_records = st.builds(
    Record,
    id=_text,
    label=st.none() | _text,
    command=st.lists(_text, max_size=3).map(tuple),
    parameters=st.dictionaries(_text, _text, max_size=2),
    started=_text,
    phases=st.lists(
        st.builds(
            Phase,
            name=_text,
            depth=st.integers(0, 3),
            calls=st.integers(0, 9),
            start=_seconds,
            end=_seconds,
            wall_time=_seconds,
            cpu_time=st.none() | _seconds,
            memory_before=st.none() | _size,
            gpus=st.lists(st.builds(GpuMemory, uuid=_text), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    series=st.none()
    | st.builds(
        Series,
        t=st.lists(_seconds, max_size=3).map(tuple),
        memory=st.lists(_size, max_size=3).map(tuple),
    ),
)


class Page(HTMLParser):
    """Reads HTML as a browser does, and keeps tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def a_record() -> Record:
    return Record(
        id="7f3a91c0d2e4",
        label="alice",
        command=("python", "tag.py", "a file.txt"),
        started="2026-11-21T10:00:00Z",
        state="COMPLETED",
        usage=Usage(
            wall_time=12.4,
            cpu_time=11.9,
            cpus_used=0.96,
            peak_memory=PeakMemory(
                value=392 * MIB,
                low=390 * MIB,
                high=401 * MIB,
                anonymous=None,
                shared=None,
                file=None,
                source="kernel",
            ),
            gpus=(GpuUsage(uuid="GPU-0", name="V100", peak_memory=2 * GIB),),
        ),
        phases=(Phase("load", 0, 1, 0, 2, 2.5), Phase("read", 1, 3, 0, 1, 0.5)),
        batches=Batches(size=50, count=20, samples=1000, time_mean=0.2),
        series=Series(t=(0.0, 5.0, 10.0), memory=(0, 392 * MIB, 196 * MIB)),
    )


@given(_records)
def test_any_record_gives_balanced_html_that_loads_and_runs_nothing(
    record: Record,
) -> None:
    page = Page(render_html(record))
    assert page.open == []
    assert page.tags <= {"div", "b", "table", "tr", "th", "td", "svg", "polyline"}
    assert page.attributes.isdisjoint({"src", "href", "onload", "onclick"})


def test_what_a_user_wrote_is_text_and_not_markup() -> None:
    hostile = '<img src=x onerror="alert(1)">'
    record = Record(
        id="1", label=hostile, command=(hostile,), started="", parameters={"a": hostile}
    )
    page = Page(render_html(record))
    assert "img" not in page.tags
    assert hostile in page.texts


def test_figures_are_those_of_the_record() -> None:
    words = " ".join(Page(render_html(a_record())).texts)
    for figure in (
        "392 MiB",
        "between 390 MiB and 401 MiB",
        "12.4 s",
        "V100: 2.00 GiB",
    ):
        assert figure in words
    assert "20, of 50 each, mean 200 ms" in words


def test_what_was_not_measured_is_no_zero() -> None:
    record = Record(id="1", command=("a",), started="", usage=Usage(wall_time=1.0))
    words = Page(render_html(record)).texts
    assert "not measured" in words
    assert not any(word.startswith("0 ") for word in words)


def test_the_curve_spans_the_run_and_reaches_its_peak() -> None:
    html = render_html(a_record())
    assert 'points="0.0,60.0 240.0,0.0 480.0,30.0"' in html


def test_phases_are_indented_by_their_depth() -> None:
    texts = Page(render_html(a_record())).texts
    assert "load" in texts
    assert "\N{NO-BREAK SPACE}" * 2 + "read" in texts
