"""Known vulnerabilities of the pinned versions, where an index of them answers.

Runs pip-audit on constraints.txt: 0 if nothing is known, 1 if something is, and 0 with a word on
standard error where pip-audit is not installed, no index answers, or it knows no package.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PINS = Path(__file__).resolve().parents[1] / "constraints.txt"
SILENCE = (
    r"ConnectionError|Max retries|Connection refused|Name or service|timed? ?out|HTTPError|404"
)
TIMEOUT = 300.0


def skipped(reason: str) -> int:
    """Say that nothing was looked up."""
    print(f"audit skipped: {reason}", file=sys.stderr)
    return 0


def main() -> int:
    """Run the audit."""
    lines = PINS.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        pins.write_text("\n".join(line.split(";")[0] for line in lines), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip"]
        command += ["--progress-spinner", "off", "-r", str(pins)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return skipped(f"no answer in {TIMEOUT:.0f} s")
    said = done.stdout + done.stderr
    if "No module named" in said:
        return skipped("pip install pip-audit first")
    if done.returncode and not done.stdout.strip() and re.search(SILENCE, said):
        return skipped("the index of vulnerabilities does not answer")
    unknown = said.count("could not be audited")
    if unknown and unknown >= sum("==" in line for line in lines):
        return skipped("the index knows none of the packages")
    print(said.strip())
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
