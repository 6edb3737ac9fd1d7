"""Reports in a browser: nothing runs, nothing is loaded, nothing is cut off."""

from urllib.parse import urlparse

import numpy as np
import pytest
from browser import browser, find_browser
from few_draws import few_draws
from pages import HOSTILE
from small_models import SMALL, renamed

from bmsvm import BMSVMClassifier
from bmsvm.report import write_report

PAPER = {False: "rgb(255, 255, 255)", True: "rgb(27, 31, 36)"}


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on PATH; install it, or name it in BMSVM_BROWSER")
    with browser(path, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module", params=[3, 10, 26])
def page(request, tmp_path_factory):
    """The address of a report, and its number of classes, some of them with hostile names."""
    c, path = request.param, tmp_path_factory.mktemp("page") / "report.html"
    classes = np.array([*HOSTILE, *(f"class {j}" for j in range(3, c))], object)
    codes = np.arange(2 * c) % c
    rows = np.random.default_rng(0).normal(size=(2 * c, 2)) + np.stack([codes % 5, codes // 5]).T
    settings = {"lengthscale": 1.5, "likelihood": "normalized", **SMALL}
    with few_draws():
        model = BMSVMClassifier(**settings).fit(rows, codes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bmsvm.report.sections.RESOLUTION", 6)
        new = rows[: c + 2]
        write_report(renamed(model, classes), path, new, classes[codes[: c + 2]], title="x" * 200)
    return path.as_uri(), c


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("width", "height", "phone"), [(1280, 900, False), (390, 844, True)], ids=["desk", "phone"]
)
def test_in_a_browser(tab, page, width, height, dark, phone):
    address, c = page
    tab.open(address, width=width, height=height, dark=dark, phone=phone)
    assert tab.complaints() == []
    assert {urlparse(url).scheme for url in tab.requests()} <= {"file", "data"}
    assert sum(url.startswith("file") for url in tab.requests()) == 1
    assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert tab.evaluate(broken) == 0
    assert tab.evaluate("document.images.length") == (9 if c == 3 else 8)  # a triangle of three
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
    wide = tab.evaluate("document.querySelectorAll('.wide').length")
    assert wide == (0 if c == 3 else 2)  # the confusion matrix, and regions with a legend beside
    assert tab.evaluate(shown) == (2 + wide if phone else 0)
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
