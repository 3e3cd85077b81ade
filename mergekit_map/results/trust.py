"""Trust in code that the configuration of a run folder names.

A run folder is data, whoever wrote it. A configuration outside of it is the user's own,
and may name code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mergekit_map.config.engines import EngineSpec
from mergekit_map.config.schema import BackendSpec
from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, TaskSpec
from mergekit_map.errors import ArtifactError
from mergekit_map.results.run_folder import RunFolder


def refuse_code(
    config: Path,
    tasks: Mapping[str, TaskSpec],
    backend: BackendSpec | None,
    engine: EngineSpec | None = None,
) -> None:
    """Refuse a configuration that names code and lies in a run folder.

    Raises:
        ArtifactError: with what would run.
    """
    folder = RunFolder(config.parent)
    if not folder.exists:
        return
    own = (spec.engine for spec in tasks.values() if isinstance(spec, LmEvalTask))
    args = [key for spec in (engine, *own) if spec is not None for key in spec.args]
    code = [f"task {name!r}" for name, spec in tasks.items() if _names_code(spec)]
    code += ["the backend"] if backend is not None else []
    code += [f"what vLLM is opened with ({', '.join(args)})"] if args else []
    if code:
        raise ArtifactError(
            f"the configuration of the run folder {folder.path} names code that would "
            f"run here: {', '.join(code)}; look at {config}, and if you trust it, add "
            "--trust-run (trust_run=True)"
        )


def _names_code(task: TaskSpec) -> bool:
    if isinstance(task, LmEvalTask):  # a file of them may hold functions, templates
        is_file = Path(task.lm_eval).suffix in {".yaml", ".yml"}
        return is_file or task.confirm_run_unsafe_code
    return not isinstance(task, PerplexityTask)
