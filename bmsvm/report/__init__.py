"""A fitted model as one page of HTML that stands alone."""

from bmsvm.report.write import report_html, write_report

__all__ = ["report_html", "write_report"]
