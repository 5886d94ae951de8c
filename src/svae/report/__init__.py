"""The report: arrays and tables in, one self-contained page out. Knows no model."""

from svae.report.data import RecordingView as RecordingView
from svae.report.data import ReportData as ReportData
from svae.report.page import write_report as write_report
