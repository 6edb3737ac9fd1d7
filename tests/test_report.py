"""Reports: one page that stands alone, says what was found, and runs nothing."""

import base64
import os
import re
from urllib.parse import urlparse
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from browser import browser, find_browser
from pages import HOSTILE, Page
from small_models import CODES, NEW, WORDS, X, Y, fit, renamed

import bmsvm
from bmsvm import cli
from bmsvm.estimators.convergence import Diagnosis
from bmsvm.estimators.summary import summarise_model
from bmsvm.report import report_html
from bmsvm.report.evaluation import evaluate
from bmsvm.report.figures import BY_NIGHT, DARK, INK, LIGHT, PAPER, svg_of
from bmsvm.report.sections import head

TRUTH = np.array(["blue", "green", "red", "red", "blue"])


@pytest.fixture(scope="module", autouse=True)
def coarse_pictures():
    """What is drawn does not depend on how finely."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bmsvm.report.sections.RESOLUTION", 6)
        yield


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture(scope="module")
def text(model):
    return report_html(model, NEW, TRUTH, title="Trees")


def pictures(text):
    """Parse the pictures of a page, which must be well-formed."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    return [ElementTree.fromstring(base64.b64decode(each)) for each in found]


def words(picture):
    """Return all text in a picture."""
    return " ".join(
        element.text or "" for element in picture.iter() if element.tag.endswith("text")
    )


def test_it_says_what_was_found(model, text):
    said = Page(text).text
    for part in (
        "Trees",
        "The chains have not converged. ",
        "call fit_more(",
        "2 chains of 20 draws after 20 sweeps of warm-up",
        "18 rows, 2 features, 3 classes",
        "1.5 (given)",
        f"bmsvm {bmsvm.__version__}",
        "Moves of the scores were accepted at a rate of 1.00",
        "Predictions of held-out rows",
        "Expected calibration error",
        "The 5 held-out rows whose label was given the least probability",
    ):
        assert part in said
    # traces of two, tau/sigma2, margins, regions, reliability, rejection, confusion, ternary
    assert len(pictures(text)) == 9


def test_scores_are_those_of_the_predictions(model, text):
    found = evaluate(model, NEW, TRUTH)
    chances = model.predict_proba(NEW)
    codes = np.searchsorted(WORDS, TRUTH)
    error, log_loss, brier, calibration = found.scores()
    assert error.value == np.mean(model.predict(NEW) != TRUTH)
    assert error.lower <= error.value <= error.upper
    np.testing.assert_allclose(log_loss.value, -np.log(chances[np.arange(5), codes]).mean())
    np.testing.assert_allclose(brier.value, ((chances - np.eye(3)[codes]) ** 2).sum(1).mean())
    assert 0 <= calibration.value <= 1
    assert f"{log_loss.value:.3f}" in Page(text).text
    worst = found.worst(2)
    np.testing.assert_array_equal(worst, np.argsort(chances[np.arange(5), codes])[:2])


def test_without_held_out_rows_it_says_so(model):
    said = Page(report_html(model)).text
    assert "predictions of training rows flatter the model" in said
    assert "Expected calibration error" not in said
    assert "whose labels the model has seen" in said


def test_the_verdict_is_in_words_and_not_in_colour_alone(model):
    other = renamed(model, model.classes_)

    def verdict(diagnostics):
        other.diagnostics_ = diagnostics
        return head("x", summarise_model(other), other)

    good = verdict({"precision": Diagnosis(1.001, 512.0)})
    assert "✓ The chains have converged. The largest R-hat is 1.001" in Page(good).text
    assert 'class="verdict good"' in good
    bad = verdict({"precision": Diagnosis(1.2, 512.0)})
    said = Page(bad).text
    assert "✗ The chains have not converged. Of what is watched, precision has R-hat 1.20" in said
    assert "or fit again with a larger num_warmup (it is " in verdict(
        {f"f at training row 0, class {'x' * 40}": Diagnosis(1.2, 12.0)}
    )  # to its end
    assert 'class="verdict"' in bad
    assert "✗ Too few draws to tell" in Page(verdict({})).text


def test_it_stands_alone(text):
    parsed = Page(text)
    assert "script" not in parsed.tags
    assert {link.split(":")[0] for link in parsed.links} == {"data"}
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", text)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    for picture in pictures(text):
        assert not [
            each for each in picture.iter() if each.tag.endswith(("script", "foreignObject"))
        ]
        for element in picture.iter():
            for name, value in element.attrib.items():
                if name.rsplit("}")[-1] in ("href", "src"):
                    assert value.startswith(("#", "data:image/png"))
                assert "url(http" not in value
    # what is left of addresses are names of namespaces, which nothing loads
    inside = " ".join(ElementTree.tostring(each, "unicode") for each in pictures(text))
    assert {urlparse(url).netloc for url in re.findall(r"https?://[^\s\"'<>]+", inside)} <= {
        "www.w3.org"
    }
    assert "http" not in re.sub(r"http-equiv", "", text)


def test_the_same_model_gives_the_same_page(model, text):
    assert report_html(model, NEW, TRUTH, title="Trees") == text


def test_names_from_the_data_are_only_text(model):
    other = renamed(model, np.array(HOSTILE, object))
    other.feature_names_in_ = np.array(HOSTILE[:2], object)
    other.diagnostics_ = {f"f of {name}": Diagnosis(1.0, 9.0) for name in HOSTILE}
    names = np.array(HOSTILE, object)[np.searchsorted(WORDS, TRUTH)]
    page = report_html(other, NEW.to_numpy(), names, rows=(HOSTILE * 2)[:5], title=HOSTILE[0])
    page.encode()  # no lone surrogates
    parsed = Page(page)
    assert not {"script", "iframe", "object"} & set(parsed.tags)
    assert not [name for name in parsed.attributes if name.startswith("on")]
    for name in HOSTILE:
        assert name.replace("\ud800", "?") in parsed.text
    for picture in pictures(page):
        assert not [each for each in picture.iter() if each.tag.endswith("script")]
        assert not [name for each in picture.iter() for name in each.attrib if name[:2] == "on"]
    assert any("<script>" in words(picture) for picture in pictures(page))  # shown, not run


def test_pictures_take_the_colours_of_the_page():
    drawn = svg_of(lambda ax: ax.plot([0, 1], color="#0072B2"), (2, 2))
    assert INK not in drawn
    assert PAPER not in drawn
    assert "stroke: var(--c0)" in drawn
    assert f"--ink:{LIGHT['ink']}" in drawn
    assert f"prefers-color-scheme:dark){{:root{{--ink:{DARK['ink']}" in drawn
    kept = svg_of(lambda ax: ax.plot([0, 1], color="#0072B2"), (2, 2), on_light=True)
    assert "stroke: #0072b2" in kept
    assert min(contrast(theme["ink"], theme["paper"]) for theme in (LIGHT, DARK)) >= 7
    assert min(contrast(colour, DARK["paper"]) for colour in BY_NIGHT.values()) >= 4.5


def contrast(one, other):
    """Contrast of two colours, by the rule of the WCAG."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_a_file_is_replaced_whole_or_not_at_all(model, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(ValueError, match="y must have labels among the classes"):
        model.report(path, NEW, ["pink"] * 5)
    monkeypatch.setattr("bmsvm.report.write.report_html", lambda *_, **__: "after")
    real = os.replace
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="nothing was saved"):
        model.report(path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    monkeypatch.setattr("os.replace", real)
    assert model.report(path) is model
    assert path.read_text() == "after"


def test_what_it_does_not_take_it_names(model):
    for match, args, settings in (
        ("X and y must be given together: X is, y is not", (NEW,), {}),
        ("same number of rows; got 5 and 2", (NEW, TRUTH[:2]), {}),
        ("rows must have one label for each of 5 rows", (NEW, TRUTH), {"rows": [1]}),
        ("give X and y too", (), {"rows": [1]}),
    ):
        with pytest.raises(ValueError, match=match):
            report_html(model, *args, **settings)
    with pytest.raises(ValueError, match="not fitted yet"):
        report_html(bmsvm.BMSVMClassifier())


def test_the_command(model, tmp_path, capsys):
    saved, page, held_out = (tmp_path / name for name in ("model.bmsvm", "report.html", "new.csv"))
    bmsvm.save(model, saved)
    NEW.assign(colour=TRUTH).iloc[:, ::-1].to_csv(held_out, index=False)
    arguments = ["report", saved, "--held-out", held_out, "--target", "colour", "-o", page]
    assert cli.main(list(map(str, arguments))) == 0
    said = Page(page.read_text(encoding="utf-8")).text
    assert "Predictions of held-out rows" in said
    assert "line 6" in said  # the last row of the file
    assert cli.main(["report", str(saved), "-o", str(page)]) == 0
    assert "Predictions of the training rows" in Page(page.read_text(encoding="utf-8")).text
    assert capsys.readouterr() == ("", "")
    assert cli.main(list(map(str, arguments[:4] + arguments[6:]))) == 1
    assert "--held-out and --target must be given together" in capsys.readouterr().err
    NEW.assign(colour="pink").to_csv(held_out, index=False)
    assert cli.main(list(map(str, arguments))) == 1
    assert "line 2, column 'colour': 'pink' is no class of the model" in capsys.readouterr().err


def test_the_command_reads_labels_as_the_model_has_them(model, tmp_path):
    numbered = renamed(model, np.array([1, 2, 3]))
    del numbered.feature_names_in_  # by their order, then
    saved, held_out = tmp_path / "model.bmsvm", tmp_path / "new.csv"
    bmsvm.save(numbered, saved)
    pd.DataFrame({"a": NEW.iloc[:, 0], "y": [1, 2, 3, 3, 1], "b": NEW.iloc[:, 1]}).to_csv(
        held_out, index=False
    )
    page = tmp_path / "report.html"
    command = ["report", saved, "--held-out", held_out, "--target", "y", "-o", page]
    assert cli.main(list(map(str, command))) == 0
    expected = evaluate(numbered, NEW.to_numpy(), np.array([1, 2, 3, 3, 1])).scores()[1]
    assert f"{expected.value:.3f}" in page.read_text(encoding="utf-8")


def test_gram_matrices_are_reported_without_pictures_of_rows():
    rows = (X / X.std()).to_numpy()
    gram = np.exp(-((rows[:, None] - rows) ** 2).sum(-1) / 4)
    settings = {"likelihood": "hinge", "preset": "gibbs", "num_chains": 2, "num_warmup": 20}
    model = bmsvm.BMSVMClassifier(kernel="precomputed", num_samples=20, random_state=0, **settings)
    with pytest.warns(UserWarning, match="converged"):
        model.fit(gram, Y)
    assert "Predictions" not in Page(report_html(model)).text
    assert (
        "Predictions of held-out rows" in Page(report_html(model, gram[:6], WORDS[CODES[:6]])).text
    )


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on PATH; install it, or name it in BMSVM_BROWSER")
    with browser(path, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def page_of_hostile_names(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    names = np.array(HOSTILE, object)[np.searchsorted(WORDS, TRUTH)]
    renamed(model, np.array(HOSTILE, object)).report(path, NEW, names, title="x" * 200)
    return path.as_uri()


@pytest.mark.parametrize(
    ("width", "height", "dark", "phone"),
    [(1200, 900, False, False), (1200, 900, True, False), (360, 740, True, True)],
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
    paper = (DARK if dark else LIGHT)["paper"]
    shown = tuple(int(paper[i : i + 2], 16) for i in (1, 3, 5))
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == f"rgb{shown}"
    assert tab.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16


def test_the_browser_would_have_complained(tab, tmp_path):
    """The checks above see what they are for: a script, a missing picture, a wide table."""
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error(1)</script><img src='no.png'><p style='width:2000px'>x")
    tab.open(path.as_uri(), width=360, height=740)
    assert len(tab.complaints()) >= 2
    assert sum(url.startswith("file") for url in tab.requests()) == 2
    assert tab.evaluate("document.documentElement.scrollWidth") > 360
