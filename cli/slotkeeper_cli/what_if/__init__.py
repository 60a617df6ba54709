"""The waits of a process, predicted for another limit: its records, replayed by the layer's own rules.

`recording` and `prediction` are pure: values in, values out.
"""

from __future__ import annotations

from slotkeeper_cli.account import Account
from slotkeeper_cli.audit_lines import MAX_PAGES as MAX_AUDIT_PAGES
from slotkeeper_cli.audit_lines import Audited
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.formatting import count
from slotkeeper_cli.process_rows import MAX_HISTORY_CALLS
from slotkeeper_cli.unread import Search
from slotkeeper_cli.what_if.recording import Recording, recording_of

# The stack's description, and the process's item.
MAX_CALLS = MAX_HISTORY_CALLS + MAX_AUDIT_PAGES + 2
_DAY = 86400
# Seconds after the end of a period in which requests that it contains may end while they are read.
_LATER = 3600


def read_recording(account: Account, since: float, until: float, name: str) -> Recording:
    """Read the rows of a process, in at most MAX_CALLS calls. It changes nothing.

    Args:
        since, until: seconds since the epoch; `until` is now.

    Raises:
        NotFound: there is no such process.
        CommandFailed: records without which a replay would be wrong could not be read.
    """
    process, search = account.process(name), Search()
    given = (account.stack.parameters.get(f"{each}RetentionDays") for each in ("Request", "Failed"))
    kept = min(int(days or 30) for days in given)
    doubts = []
    if since < until - kept * _DAY:
        since = until - kept * _DAY
        doubts.append(f"the period is cut: rows are kept for {count(kept, 'day')} after their end")
    rows = account.history(search, name, since, until + _LATER)
    if search.not_read:
        lacking = "; ".join(f"{each.source}: {each.why}" for each in search.not_read)
        raise CommandFailed(f"the records of process {name} could not be read: {lacking}")
    none = Audited([], is_complete=False)
    audited = search.try_read("AuditLogGroup", lambda: account.audit_lines("process", name, since), none)
    if not audited.is_complete:
        why = "".join(f": {each.why}" for each in search.not_read)
        doubts.append(
            f"the audit log was not read completely{why}, so the present settings are taken for those of then"
        )
    return recording_of(process, rows, audited.lines, since, until, doubts)
