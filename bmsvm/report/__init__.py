"""Reports: a fitted model as one self-contained HTML page (``pip install 'bmsvm[report]'``)."""

from bmsvm.report.write import report_html, write_report

__all__ = ["report_html", "write_report"]
