"""Reports: one self-contained page with the numbers of the model, in which names are only text."""

import base64
import datetime
import os
import re
import sys
from dataclasses import replace
from importlib.metadata import version
from urllib.parse import urlparse
from xml.etree import ElementTree

import numpy as np
import pytest
from few_draws import few_draws
from pages import HOSTILE, Page
from small_models import CODES, NEW, WORDS, X, Y, fit, renamed

import bmsvm
from bmsvm.convergence import Diagnosis
from bmsvm.report import report_html, write_report
from bmsvm.report.evaluation import evaluate
from bmsvm.report.predicted import doubt
from bmsvm.summary import summarise_model

TRUTH = np.array(["blue", "green", "red", "red", "blue"])


@pytest.fixture(scope="module", autouse=True)
def coarse_pictures():
    """Draw the regions coarsely, for speed."""
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


def headings(text):
    return re.findall("<h2>(.*?)</h2>", text)


def test_it_has_the_facts_of_the_model(model, text):
    said, summary = Page(text).text, summarise_model(model)
    for part in (
        "Trees",
        "The chains have not converged",
        "fit_more(",
        *summary.facts.values(),
        "0, as given",
        "width, height",
        datetime.date.today().isoformat(),
        f"bmsvm {bmsvm.__version__}",
        *(f"{name} {version(name)}" for name in ("jax", "numpyro", "numpy", "scikit-learn")),
        f"{model.posterior_.samples['accept_prob'].mean():.2f}",
        "Expected calibration error",
        *(repr(value) for value in model.get_params(deep=False).values()),
    ):
        assert part in said
    assert headings(text) == [
        *("Predictions of held-out rows", "Classes", "Uncertainty"),
        *("Posterior", "Chains", "Model"),
    ]
    # traces of two, tau/sigma2, margins, regions, reliability, rejection, confusion, ternary
    assert len(pictures(text)) == 9


def test_convergence_has_the_statistics_of_the_sampler(model, text):
    assert "Hamiltonian" not in text  # Gibbs has no steps
    hmc = fit(sampler="hmc")
    samples, said = hmc.posterior_.samples, Page(report_html(hmc)).text
    assert f"{samples['accept_prob'].mean():.2f}" in said
    assert f": {samples['num_steps'].mean():.0f}, of size {samples['step_size'].mean():.2g}" in said
    other = renamed(model, model.classes_)
    other.diagnostics_ = {}
    assert "ESS" not in Page(report_html(other)).text


def test_independent_draws_have_no_chains():
    page = report_html(fit(likelihood="squared", sampler="table"))
    said = Page(page).text
    assert headings(page)[-2:] == ["Draws", "Model"]
    assert "✓ The draws are independent." in said
    assert "There are no chains" in said
    for words_of_chains in ("Trace of", "acceptance", "warm-up sweeps", "have converged"):
        assert words_of_chains not in said


@pytest.mark.parametrize(
    ("likelihood", "meaning"),
    [
        ("hinge", "penalised right of the hinge"),
        ("normalized", "Right of the hinge a larger score makes"),
        ("squared", "codes: 1 for the own class, -0.5 for others"),  # (4): three classes
    ],
)
def test_the_caption_of_scores_is_that_of_the_likelihood(likelihood, meaning):
    said = Page(report_html(fit(likelihood=likelihood, sampler="auto"))).text
    (caption,) = re.findall(r"Mean scores of the training rows\. (.*)", said)
    assert meaning in caption


def test_scores_are_those_of_the_predictions(model, text):
    found = evaluate(model, NEW, TRUTH)
    chances = model.predict_proba(NEW)
    codes = np.searchsorted(WORDS, TRUTH)
    shares = np.array([0.5, 0.3, 0.2])
    error, log_loss, brier, calibration = found.scores(shares)
    assert error.value == np.mean(model.predict(NEW) != TRUTH)
    assert error.lower <= error.value <= error.upper
    np.testing.assert_allclose(log_loss.value, -np.log(chances[np.arange(5), codes]).mean())
    np.testing.assert_allclose(brier.value, ((chances - np.eye(3)[codes]) ** 2).sum(1).mean())
    assert 0 <= calibration.value <= 1
    assert f"{log_loss.value:.3f}" in Page(text).text
    assert error.baseline == np.mean(TRUTH != "blue")
    np.testing.assert_allclose(log_loss.baseline, -np.log(shares[codes]).mean())
    np.testing.assert_allclose(brier.baseline, ((shares - np.eye(3)[codes]) ** 2).sum(1).mean())
    assert log_loss.lower >= 0


def test_the_worst_are_the_wrong_ones_first(model):
    """Also before right ones whose label is less probable: 0.4 before 0.36."""
    chances = np.array([[0.4, 0.15, 0.45], [0.36, 0.3, 0.34], [0.1, 0.8, 0.1], [0.05, 0.9, 0.05]])
    found = evaluate(model, NEW, TRUTH)._replace(
        y=np.array(["blue", "blue", "green", "red"]),
        codes=np.array([0, 0, 1, 2]),
        predicted=np.array([2, 0, 1, 1]),
        probabilities=chances,
        rows=np.array(["a", "b", "c", "d"]),
        entropy=np.zeros(4),
        epistemic=np.zeros(4),
        seen=True,
    )
    assert found.worst(4).tolist() == [3, 0, 1, 2]
    table = doubt(model, found).table
    assert [row[:2] for row in table.rows] == [
        *(("d", "✗ wrong"), ("a", "✗ wrong"), ("b", "✓ right"), ("c", "✓ right")),
    ]
    assert len(set(table.head)) == len(table.head)  # every column has a name of its own
    for name, column in (("Probability of true class", 4), ("Probability of predicted class", 5)):
        assert table.head[column] == name
    assert table.rows[0][2:6] == ("red", "green", "0.050", "0.900")


def test_the_seed_is_the_one_that_was_given(model):
    other = renamed(model, model.classes_)
    other.random_state = None
    said = Page(report_html(other)).text
    assert f"none was given; the chains used {model.seed_}" in said


def test_wide_tables_and_pictures_have_a_cue(model, text):
    cues = re.findall('<p class="cue">(.*?)</p>', text)
    assert [re.sub(r"\D", "", cue) for cue in cues] == ["8", "7"]  # classes, worst predicted
    assert 'class="scroll many"' in text


@pytest.mark.parametrize("c", [2, 3, 10, 26])
def test_every_class_is_named_in_tables_and_pictures(c):
    names = np.array([f"name {i:02d}" for i in range(c)])
    rng = np.random.default_rng(c)
    codes = np.arange(3 * c) % c
    rows = rng.normal(size=(3 * c, 3)) + 4 * rng.normal(size=(c, 3))[codes]
    settings = {"likelihood": "squared", "num_chains": 2, "num_warmup": 5, "num_samples": 12}
    with few_draws():
        model = bmsvm.BMSVMClassifier(lengthscale=1.0, random_state=0, **settings)
        model.fit(rows, names[codes])
    page = report_html(model, rows + 0.1, names[codes])
    said = Page(page).text
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    drawn = dict(zip(captions, pictures(page), strict=True))
    (confusion,) = (words(each) for said, each in drawn.items() if said.startswith("Confusion"))
    (regions,) = (words(each) for said, each in drawn.items() if said.startswith("Most probable"))
    (margins,) = (words(each) for said, each in drawn.items() if said.startswith("Mean scores"))
    for name in names:
        assert name in said
        assert confusion.count(name) == 2  # rows and columns
        assert name in regions
        assert name in margins
    assert ("intervals" in confusion) == (c <= 12)
    assert any("Colours are used several times" in each for each in captions) == (c > 8)


def test_training_rows_have_no_scores(model):
    page = report_html(model)
    assert "Predictions of training rows" in headings(page)
    assert "Expected calibration error" not in page
    assert len(pictures(page)) == 7  # no reliability, no rejection


def test_the_verdict_is_in_words_and_not_in_colour_alone(model):
    other = renamed(model, model.classes_)

    def verdict(diagnostics):
        other.diagnostics_ = diagnostics
        (found,) = re.findall('<p class="verdict.*?</p>', report_html(other))
        return found

    good = verdict({"precision": Diagnosis(1.001, 512.0)})
    assert "✓ The chains have converged" in Page(good).text
    assert 'class="verdict good"' in good
    bad = verdict({"precision": Diagnosis(1.2, 512.0)})
    assert "✗ The chains have not converged" in Page(bad).text
    assert "precision has R-hat 1.20" in Page(bad).text
    assert 'class="verdict"' in bad
    long = verdict({f"f at training row 0, class {'x' * 40}": Diagnosis(1.2, 12.0)})
    assert "num_warmup" in long  # the advice is not cut
    assert "✗ Too few draws" in Page(verdict({})).text


def test_a_check_that_has_failed_is_in_the_verdict(model):
    other = renamed(model, model.classes_)
    other.diagnostics_ = {"precision": Diagnosis(1.001, 512.0)}
    sampler = {"accept_prob": 0.1, "num_steps": 9, "step_size": 0.2}
    draws = {name: np.full((2, 20), value) for name, value in sampler.items()}
    other.run_ = replace(model.run_, samples={**model.run_.samples, **draws})
    (found,) = re.findall('<p class="verdict.*?</p>', report_html(other))
    said = Page(found).text
    assert said.startswith("✗ The chains have not converged. Chain 0 accepts 0.10 of its")
    assert said.endswith("larger num_warmup.")
    assert 'class="verdict"' in found


def test_it_is_self_contained(text):
    parsed = Page(text)
    assert "script" not in parsed.tags
    assert {link.split(":")[0] for link in parsed.links} == {"data"}
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", text)
    assert "default-src 'none'" in text
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
    # The addresses that remain are names of namespaces, which nothing loads.
    inside = " ".join(ElementTree.tostring(each, "unicode") for each in pictures(text))
    assert {urlparse(url).netloc for url in re.findall(r"https?://[^\s\"'<>]+", inside)} <= {
        "www.w3.org"
    }
    assert "http" not in re.sub(r"http-equiv", "", text)


def test_text_has_enough_contrast(text):
    """WCAG's AAA, in the light and in the dark scheme."""
    inks, papers = (re.findall(rf"--{name}: (#\w+)", text) for name in ("ink", "paper"))
    assert len(inks) == len(papers) == 2
    assert min(map(contrast, inks, papers)) >= 7


def contrast(one, other):
    """Contrast of two colours by the WCAG."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_the_same_model_gives_the_same_page(model, text):
    assert report_html(model, NEW, TRUTH, title="Trees") == text


def test_names_from_the_data_are_only_text(model):
    other = renamed(model, np.array(HOSTILE, object))
    other.feature_names_in_ = np.array(HOSTILE[:2], object)
    other.diagnostics_ = {f"f of {name}": Diagnosis(1.0, 9.0) for name in HOSTILE}
    other.class_weight = dict.fromkeys(HOSTILE, 1.0)
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


def test_long_names_are_cut(model):
    other = renamed(model, np.array([f"{i}" + "x" * 10**5 for i in range(3)], object))
    assert len(report_html(other)) < 10**6


def test_a_file_is_replaced_whole_or_not_at_all(model, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(ValueError, match=r"y must have labels .*'pink'"):
        write_report(model, path, NEW, ["pink"] * 5)
    monkeypatch.setattr("bmsvm.report.write.report_html", lambda *_, **__: "after")
    real = os.replace
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_report(model, path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    monkeypatch.setattr("os.replace", real)
    write_report(model, path)
    assert path.read_text() == "after"


def test_errors_name_the_argument(model, monkeypatch):
    for match, args, settings in (
        ("X and y", (NEW,), {}),
        (r"y must .* 5 rows; got \(2,\)", (NEW, TRUTH[:2]), {}),
        ("rows must .* 5 rows", (NEW, TRUTH), {"rows": [1]}),
        ("rows", (), {"rows": [1]}),
    ):
        with pytest.raises(ValueError, match=match):
            report_html(model, *args, **settings)
    with pytest.raises(ValueError, match="not fitted yet"):
        report_html(bmsvm.BMSVMClassifier())
    for module in ("jinja2", "matplotlib"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ImportError, match=r"pip install 'bmsvm\[report\]'"):
                report_html(model)


def test_gram_matrices_are_reported_without_pictures_of_rows():
    rows = (X / X.std()).to_numpy()
    gram = np.exp(-((rows[:, None] - rows) ** 2).sum(-1) / 4)
    settings = {"likelihood": "hinge", "sampler": "gibbs", "num_chains": 2, "num_warmup": 20}
    model = bmsvm.BMSVMClassifier(kernel="precomputed", num_samples=20, random_state=0, **settings)
    with pytest.warns(UserWarning, match="converged"):
        model.fit(gram, Y)
    assert "Predictions" not in report_html(model)
    held_out = report_html(model, gram[:6], WORDS[CODES[:6]])
    assert "Predictions of held-out rows" in headings(held_out)
