"""A search in MLflow: every measurement as it comes, front and recipe at the end.

pip install mlflow
python recipes/callbacks/to_mlflow.py merge.yml my-search EXPERIMENT
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from mergekit_map import Callback, ProgressLine, search_front


class ToMlflow(Callback):
    """Logs to a run of MLflow, by the module or by whoever has its functions."""

    def __init__(self, experiment: str = "mergekit-map", mlflow: Any = None) -> None:
        self.experiment, self.mlflow, self.run = experiment, mlflow, Path()
        self.counts: Counter[str] = Counter()  # measurements of each task

    def on_start(self, started: Any) -> None:
        """Open the run, and log what was measured before."""
        if self.mlflow is None:
            import mlflow

            self.mlflow = mlflow
        self.run, self.counts = started.run, Counter()
        self.mlflow.set_experiment(self.experiment)
        self.mlflow.start_run(run_name=started.run.name)
        method = started.config.get("merge_method")
        tasks = ", ".join(started.tasks)
        known = {"method": method, "tasks": tasks, "measurements": started.total}
        self.mlflow.log_params(known)
        for evaluation in started.known:
            self.on_measured(evaluation)

    def on_measured(self, evaluation: Any) -> None:
        """Log a measurement: its value, and what it cost."""
        e = evaluation
        self.counts[e.task] += 1
        if not e.failed and e.role != "holdout":
            step = self.counts[e.task]
            self.mlflow.log_metric(e.task, e.value, step=step)
            self.mlflow.log_metric(f"{e.task}_seconds", e.seconds, step=step)

    def on_finish(self, front: Any) -> None:
        """Log what was chosen, and the files that say how to merge it."""
        for task, reading in front.chosen.measured.items():
            if reading.value is not None:
                self.mlflow.log_metric(f"chosen_{task}", reading.value)
        for name in ("front.csv", "front.png", "recipe.yml"):
            self.mlflow.log_artifact(str(self.run / name))
        self.mlflow.end_run()

    def on_stop(self, error: BaseException) -> None:  # noqa: ARG002
        """End the run as one that was stopped; the search can go on later."""
        if self.mlflow is not None:
            self.mlflow.end_run(status="KILLED")


if __name__ == "__main__":
    config, folder, *experiment = sys.argv[1:]
    search_front(config, folder, callbacks=[ProgressLine(), ToMlflow(*experiment)])
