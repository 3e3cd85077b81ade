"""A search in Weights & Biases: every measurement as it comes, the front at the end.

pip install wandb
python recipes/callbacks/to_wandb.py merge.yml my-search PROJECT
"""

from __future__ import annotations

import sys
from typing import Any

from mergekit_map import Callback, ProgressLine, answer, search_front


class ToWandb(Callback):
    """Logs to a run of W&B, by default one that it opens itself."""

    def __init__(self, project: str = "mergekit-map", run: Any = None) -> None:
        self.project, self.run, self.count = project, run, 0

    def on_start(self, started: Any) -> None:
        """Open the run, and log what was measured before."""
        if self.run is None:
            import wandb

            config = {"merge": dict(started.config), "total": started.total}
            name = started.run.name
            self.run = wandb.init(project=self.project, name=name, config=config)
        for evaluation in started.known:
            self.on_measured(evaluation)

    def on_measured(self, evaluation: Any) -> None:
        """Log a measurement: its value, its merge, and what it cost."""
        e, self.count = evaluation, self.count + 1
        if e.failed or e.role == "holdout":
            return
        weights = {f"weight/{n}": value for n, value in e.coefficients.items()}
        values = {f"task/{e.task}": e.value, f"seconds/{e.task}": e.seconds}
        self.run.log({**values, **weights}, step=self.count)

    def on_finish(self, front: Any) -> None:
        """Keep what was chosen as the summary of the run."""
        for task, reading in front.chosen.measured.items():
            self.run.summary[f"chosen/{task}"] = reading.value
        for name, value in front.chosen.coefficients.items():
            self.run.summary[f"chosen/weight/{name}"] = value
        found = answer(front)
        self.run.summary["answer"] = "\n".join([found.headline, *found.findings])
        self.run.finish()
        self.run = None  # the next search opens another

    def on_stop(self, error: BaseException) -> None:  # noqa: ARG002
        """End the run as one that did not finish; the search can go on later."""
        if self.run is not None:
            self.run.finish(exit_code=1)
            self.run = None


if __name__ == "__main__":
    config, folder, *project = sys.argv[1:]
    search_front(config, folder, callbacks=[ProgressLine(), ToWandb(*project)])
