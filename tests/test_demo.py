"""The demonstration."""

from bmsvm import demo


def test_the_demo_runs_and_leaves_a_picture(tmp_path, capsys):
    numbers = demo.run_demo(tmp_path, num_warmup=60, num_samples=40)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert 0 <= numbers["error"] < 0.3
    assert "Held-out rows" in capsys.readouterr().out
