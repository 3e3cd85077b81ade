"""A configuration read, before a model is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from mergekit.options import MergeOptions

from mergekit_map.config.parsing import Problem, parse_map_block, repeated_keys
from mergekit_map.config.specs import MapBlock
from mergekit_map.config.yaml_file import MergeConfig, YamlFile, read_yaml
from mergekit_map.files import StrPath
from mergekit_map.merging.devices import check_device, decided, left_open
from mergekit_map.merging.entries import check_merge
from mergekit_map.merging.gradients import check_gradients
from mergekit_map.models.adapter_bases import with_adapter_bases
from mergekit_map.models.findings import Finding
from mergekit_map.models.moved import with_places, written_names, written_parts
from mergekit_map.models.references import absolute_references
from mergekit_map.results.origin import refuse_code
from mergekit_map.study.checking import part_problems
from mergekit_map.tasks.engine_choice import backend_problems, engine_problems
from mergekit_map.tasks.loading import LoadedTask, load_tasks


@dataclass(frozen=True, eq=False)
class Draft:
    """What a configuration says, before a model is looked at."""

    file: YamlFile
    directory: Path
    options: MergeOptions
    spec: MapBlock | None  # None where the map block is wrong
    tasks: Mapping[str, LoadedTask]
    merge: MergeConfig | None  # mergekit's part; None where it is wrong
    problems: Sequence[Problem]
    adapters: Mapping[str, Finding] = field(default_factory=dict)  # filled-in bases
    places: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    open_device: bool = False  # nobody asked for the one in the options


def quietly(options: MergeOptions | None) -> MergeOptions:
    """Give the options, by default mergekit's without its bars, the device open."""
    return options or left_open(MergeOptions(quiet=True))


def read_draft(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = MappingProxyType({}),
) -> Draft:
    """Read a configuration and load its tasks; of models only adapters are looked at.

    Raises:
        ArtifactError: it lies in a run folder, and names code.
        ConfigError: the file cannot be read, or the device is not there.
    """
    config, directory = Path(config), Path(directory or Path.cwd()).resolve()
    if options is not None and options.device is not None:
        check_device(options)
    file = read_yaml(config)
    problems = [*repeated_keys(file), *check_merge(file.merge)]
    sound = not concerns_merge(problems)
    said: Mapping[str, Finding] = {}
    merge, places, names = None, dict[str, str](), dict[str, str]()
    if sound:
        placed, places = with_places(file.merge, model_paths)
        merge = absolute_references(placed, directory)
        written = absolute_references(file.merge, directory)
        moved = written_parts(merge, written)
        merge, said = with_adapter_bases(merge, directory)
        names = written_names(merge, moved)
    spec, specs, more = parse_map_block(file)
    backend, engine = (spec.backend, spec.engine) if spec else (None, None)
    if not trust_run:
        refuse_code(config, specs, backend, engine)
    tasks, wrong = load_tasks(specs, directory)
    problems += [*more, *wrong, *engine_problems(tasks, specs, engine)]
    problems += backend_problems(backend)
    if spec is not None:
        problems += check_gradients(file.merge, spec)
        metrics = {name: task.metric for name, task in tasks.items()}
        unable = {name for name, task in tasks.items() if not task.partial}
        problems += part_problems(spec, metrics, unable)
    options = quietly(options)
    return Draft(
        file,
        directory,
        decided(options),
        spec,
        tasks,
        merge,
        problems,
        said,
        places,
        names,
        open_device=options.device is None,
    )


def concerns_merge(problems: list[Problem]) -> bool:
    """Tell whether something is wrong beside the map block."""
    return any(problem.key[:1] != ("map",) for problem in problems)
