"""The report: arrays and tables in, one self-contained page out. Knows no model."""

from svae.report.data import RecordingView as RecordingView
from svae.report.data import ReportData as ReportData
from svae.report.page import write_report as write_report
from svae.report.parts import Certificate as Certificate
from svae.report.parts import FanView as FanView
from svae.report.parts import SampleView as SampleView
from svae.report.parts import Skeleton as Skeleton
from svae.report.parts import StateDynamics as StateDynamics
