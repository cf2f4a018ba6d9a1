"""Writes all golden files anew, and the pages that quote them: ``python -m tests.golden``. Read the diff."""

from tests.docs.outputs import write
from tests.golden import gone_pod
from tests.golden.capturing import captured
from tests.golden.dead_node import NAME, dead_node
from tests.golden.files import TEXTS, file_named, file_of
from tests.golden.moments import MOMENTS

TEXTS.mkdir(exist_ok=True)
kept = {file_of(moment) for moment in MOMENTS} | {file_named(NAME), file_named(gone_pod.NAME)}
for stale in set(TEXTS.glob("*.txt")) - kept:
    stale.unlink()
for moment in MOMENTS:
    file_of(moment).write_text(captured(moment), encoding="utf-8")
file_named(NAME).write_text(dead_node(), encoding="utf-8")
file_named(gone_pod.NAME).write_text(gone_pod.gone_pod(), encoding="utf-8")
write()
