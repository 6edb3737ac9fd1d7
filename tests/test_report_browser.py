"""Reports in a browser: nothing runs, nothing is loaded, nothing is cut off."""

from urllib.parse import urlparse

import numpy as np
import pytest
from browser import browser, find_browser
from pages import HOSTILE
from small_models import CODES, NEW, fit, renamed

from bmsvm.report import write_report

PAPER = {False: "rgb(255, 255, 255)", True: "rgb(27, 31, 36)"}


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on PATH; install it, or name it in BMSVM_BROWSER")
    with browser(path, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def page_of_hostile_names(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    names = np.array(HOSTILE, object)[CODES[: len(NEW)]]
    model = renamed(fit(), np.array(HOSTILE, object))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bmsvm.report.sections.RESOLUTION", 6)
        write_report(model, path, NEW, names, title="x" * 200)
    return path.as_uri()


@pytest.mark.parametrize(
    ("width", "height", "dark", "phone"),
    [(1280, 900, False, False), (1280, 900, True, False), (390, 844, True, True)],
    ids=["light", "dark", "phone"],
)
def test_in_a_browser(tab, page_of_hostile_names, width, height, dark, phone):
    tab.open(page_of_hostile_names, width=width, height=height, dark=dark, phone=phone)
    assert tab.complaints() == []
    assert {urlparse(url).scheme for url in tab.requests()} <= {"file", "data"}
    assert sum(url.startswith("file") for url in tab.requests()) == 1
    assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert tab.evaluate(broken) == 0
    assert tab.evaluate("document.images.length") == 9
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER[dark]
    image = "getComputedStyle(document.images[0]).backgroundColor"
    assert tab.evaluate(image) == PAPER[False]  # figures are dark on light
    assert tab.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    cut = "[...document.querySelectorAll('th, td, dd, dt, p')].filter(each => each.clientWidth && "
    cut += "each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"
    assert tab.evaluate(cut) == []  # no text is cut off, or runs into the next cell
    shown = "[...document.querySelectorAll('.cue')].filter(each => each.clientHeight).length"
    hidden = "[...document.querySelectorAll('.many')].filter(each => each.scrollWidth > "
    hidden += "each.clientWidth).length"
    assert tab.evaluate(shown) == (2 if phone else 0)
    assert tab.evaluate(hidden) <= tab.evaluate(shown)  # what scrolls has a cue
    first = "document.querySelector('.cards').getBoundingClientRect().top"
    assert tab.evaluate(first) < height  # the scores are on the first screen


def test_the_checks_notice_a_bad_page(tab, tmp_path):
    """A script, a missing picture and a wide paragraph."""
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error(1)</script><img src='no.png'><p style='width:2000px'>x")
    tab.open(path.as_uri(), width=360, height=740)
    assert len(tab.complaints()) >= 2
    assert sum(url.startswith("file") for url in tab.requests()) == 2
    assert tab.evaluate("document.documentElement.scrollWidth") > 360
