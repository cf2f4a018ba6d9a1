"""Records at the command line: journals and logs that ``replay`` plays like scenarios."""

import codecs

from taint_eviction.cli.visible import complain
from taint_eviction.core.text import many
from taint_eviction.files.marked_yaml import Malformed, Problem
from taint_eviction_lab.history.record import RunRecord, looks_like_record, read_record

# How many reasons are named for which lines are skipped.
_MAX_WHYS = 8


def record_in(raw: bytes, name: str) -> RunRecord | None:
    """Read a record; return None if the text is no record, but perhaps a scenario. Unusable lines are named on stderr.

    Raise ``Malformed`` if no line can be used.
    """
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if not looks_like_record(raw[:4096]):
        return None
    record = read_record(raw.splitlines(keepends=True), name)
    for problem in record.problems:
        complain(str(problem))
    if record.skipped:
        whys = ", ".join(f"{count} {why}" for why, count in record.skipped.most_common(_MAX_WHYS))
        rest = ", …" if len(record.skipped) > _MAX_WHYS else ""
        complain(f"{name}: {many(record.skipped.total(), 'line')} skipped: {whys}{rest}")
    if not record.happenings:
        raise Malformed([Problem(name, 1, "no line of this journal or log can be used")])
    return record
