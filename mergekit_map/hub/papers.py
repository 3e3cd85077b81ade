"""The methods of a merge in words, with citations, for the model card."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_PROGRAM = "mergekit-map"
_PLACES = ("homepage", "repository", "source")  # labels of project URLs


@dataclass(frozen=True)
class Paper:
    """A paper as it is cited."""

    key: str
    title: str
    authors: str  # as BibTeX has them
    year: int
    arxiv: str

    @property
    def link(self) -> str:
        """Return a Markdown link to it."""
        return f"[arXiv:{self.arxiv}](https://arxiv.org/abs/{self.arxiv})"

    @property
    def bibtex(self) -> str:
        """Return its entry of a bibliography."""
        return (
            f"@article{{{self.key},\n  title = {{{self.title}}},\n"
            f"  author = {{{self.authors}}},\n"
            f"  journal = {{arXiv preprint arXiv:{self.arxiv}}},\n"
            f"  year = {{{self.year}}}\n}}\n"
        )


_MAP = Paper(
    "li2024map",
    "{MAP}: Low-compute Model Merging with Amortized Pareto Fronts via Quadratic "
    "Approximation",
    "Li, Lu and Zhang, Tianyu and Bu, Zhiqi and Wang, Suyuchen and He, Huan and Fu, "
    "Jie and Wu, Yonghui and Bian, Jiang and Chen, Yong and Bengio, Yoshua",
    2024,
    "2406.07529",
)
_MERGEKIT = Paper(
    "goddard2024mergekit",
    "Arcee's {MergeKit}: A Toolkit for Merging Large Language Models",
    "Goddard, Charles and Siriwardhana, Shamane and Ehghaghi, Malikeh and Meyers, Luke "
    "and Karpukhin, Vlad and Benedict, Brian and McQuade, Mark and Solawetz, Jacob",
    2024,
    "2403.13257",
)
_SOUPS = Paper(
    "wortsman2022model",
    "Model Soups: Averaging Weights of Multiple Fine-tuned Models Improves Accuracy "
    "without Increasing Inference Time",
    "Wortsman, Mitchell and Ilharco, Gabriel and Gadre, Samir Yitzhak and others",
    2022,
    "2203.05482",
)
_TASK_ARITHMETIC = Paper(
    "ilharco2022editing",
    "Editing Models with Task Arithmetic",
    "Ilharco, Gabriel and Ribeiro, Marco Tulio and Wortsman, Mitchell and Gururangan, "
    "Suchin and Schmidt, Ludwig and Hajishirzi, Hannaneh and Farhadi, Ali",
    2022,
    "2212.04089",
)
_TIES = Paper(
    "yadav2023ties",
    "{TIES}-Merging: Resolving Interference When Merging Models",
    "Yadav, Prateek and Tam, Derek and Choshen, Leshem and Raffel, Colin and Bansal, "
    "Mohit",
    2023,
    "2306.01708",
)
_DARE = Paper(
    "yu2023language",
    "Language Models are Super Mario: Absorbing Abilities from Homologous Models as a "
    "Free Lunch",
    "Yu, Le and Yu, Bowen and Yu, Haiyang and Huang, Fei and Li, Yongbin",
    2023,
    "2311.03099",
)
_DELLA = Paper(
    "deep2024della",
    "{DELLA}-Merging: Reducing Interference in Model Merging through Magnitude-Based "
    "Sampling",
    "Deep, Pala Tej and Bhardwaj, Rishabh and Poria, Soujanya",
    2024,
    "2406.11617",
)
_BREADCRUMBS = Paper(
    "davari2023model",
    "Model Breadcrumbs: Scaling Multi-Task Model Merging with Sparse Masks",
    "Davari, MohammadReza and Belilovsky, Eugene",
    2023,
    "2312.06795",
)

_ADDS = "each model's difference from the base is added to it, times its weight"
_SIGNS = "where they disagree in sign, only those of the elected sign count"
_DROPS = "some of each difference is dropped at random, the rest scaled up"
_PRUNES = "some of each difference is dropped at random, small entries more often"
_MASKS = "the largest and smallest entries of each difference are left out"
METHODS: Mapping[str, tuple[str, str, tuple[Paper, ...]]] = {
    "linear": ("a linear merge", "the models' weights are averaged", (_SOUPS,)),
    "task_arithmetic": ("task arithmetic", _ADDS, (_TASK_ARITHMETIC,)),
    "ties": ("TIES", f"small entries are trimmed, {_ADDS}, and {_SIGNS}", (_TIES,)),
    "dare_linear": ("DARE", f"{_DROPS}, and {_ADDS}", (_DARE,)),
    "dare_ties": (
        "DARE with TIES",
        f"{_DROPS}, {_ADDS}, and {_SIGNS}",
        (_DARE, _TIES),
    ),
    "della": ("DELLA", f"{_PRUNES}, {_ADDS}, and {_SIGNS}", (_DELLA,)),
    "della_linear": ("DELLA, linear", f"{_PRUNES}, and {_ADDS}", (_DELLA,)),
    "breadcrumbs": ("Model Breadcrumbs", f"{_MASKS}, and {_ADDS}", (_BREADCRUMBS,)),
    "breadcrumbs_ties": (
        "Model Breadcrumbs with TIES",
        f"{_MASKS}, {_ADDS}, and {_SIGNS}",
        (_BREADCRUMBS, _TIES),
    ),
}


def method_in_words(configs: Iterable[Mapping[str, Any]], fitted: int) -> str:
    """Describe how the models were merged and the weights found; Markdown."""
    merged = [_merged(method) for method in _methods(configs)]
    return (
        f"{' '.join(merged)} The weights were found with {program_link()} by MAP "
        f"(ICLR 2025, {_MAP.link}): surrogates of each task, fitted to {fitted} "
        "measured merges, tell the trade-offs that can be had, of which this is one. "
        "It was merged with [mergekit](https://github.com/arcee-ai/mergekit)."
    )


def program_link() -> str:
    """Return a link to this program, if the package metadata has its address."""
    found = importlib.metadata.metadata(_PROGRAM).get_all("Project-URL") or []
    urls = {
        label.strip().lower(): url.strip()
        for label, _, url in (entry.partition(",") for entry in found)
    }
    url = next((urls[place] for place in _PLACES if place in urls), None)
    return f"[{_PROGRAM}]({url})" if url else _PROGRAM


def citations(configs: Iterable[Mapping[str, Any]]) -> str:
    """Return the papers of a merge as BibTeX."""
    own = [
        paper for m in _methods(configs) for paper in METHODS.get(m, ("", "", ()))[2]
    ]
    papers = dict.fromkeys([_MAP, *own, _MERGEKIT])
    return "\n".join(paper.bibtex for paper in papers)


def _methods(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    found = (config.get("merge_method") for config in configs)
    return list(dict.fromkeys(method for method in found if isinstance(method, str)))


def _merged(method: str) -> str:
    if method not in METHODS:
        return f"The models were merged by mergekit's `{method}`."
    name, words, papers = METHODS[method]
    links = " and ".join(paper.link for paper in papers)
    return f"The models were merged by {name} ({links}): {words}."
