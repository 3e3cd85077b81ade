"""What shards measured, in words, for the search that puts it together."""

from __future__ import annotations

from pathlib import Path

from mergekit_map.results.log import Evaluation, read_log
from mergekit_map.results.shard_logs import shards_in
from mergekit_map.study.study import Study
from mergekit_map.words import listed


def shards_in_words(run: Path, study: Study) -> str:
    """Say what is there of shards, what is not, and what is of something else."""
    shards = shards_in(run)
    if not shards:
        return ""
    lines = {shard: list(read_log(run / shard.log_name)) for shard in shards}
    used = {shard: sum(_is_of(study, e) for e in e_s) for shard, e_s in lines.items()}
    counts = listed(f"{count} of shard {shard}" for shard, count in used.items())
    text = f"measured in shards: {counts}"
    most = max(shards, key=lambda shard: shard.of)
    if lost := sorted(other for other in most.others if other not in lines):
        text += f"; there is no log of shard {listed(map(str, lost))}"
    if unused := sum(map(len, lines.values())) - sum(used.values()):
        text += (
            f"; {unused} more are kept but not used: they are of other models, "
            "settings or tasks"
        )
    return text


def _is_of(study: Study, e: Evaluation) -> bool:
    """Tell whether it is of the same merge and of a task as it is now."""
    known = e.role == "holdout" or study.definitions.get(e.task) == e.definition
    return known and e.merge == study.merge
