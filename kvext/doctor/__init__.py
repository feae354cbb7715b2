"""Is this host ready for kvext, and what would make it so?

Readers take a snapshot of the host, pure checks judge it, and each finding comes with its mend.
The doctor changes nothing, imports no engine, and runs where the native core does not load.
"""

from kvext.doctor.diagnose import diagnose
from kvext.doctor.finding import Finding, Report, Section, Status
from kvext.doctor.readers.system import read_host

__all__ = ["Finding", "Report", "Section", "Status", "diagnose", "read_host"]
