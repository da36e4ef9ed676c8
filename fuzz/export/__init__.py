"""From a finding to text that a maintainer can paste: a script, a test, an issue."""

from fuzz.export.diagnosis import Diagnosis, NothingFound, choose_finding, diagnose
from fuzz.export.render import FORMS, Form, export

__all__ = ["FORMS", "Diagnosis", "Form", "NothingFound", "choose_finding", "diagnose", "export"]
