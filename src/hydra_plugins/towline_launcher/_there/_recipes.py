"""From a configuration that several runs share to that of one run, by Hydra's own means."""

import dataclasses
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig, ListConfig


@dataclasses.dataclass
class Recipe:
    """What makes the configuration of one run of one that was composed for a choice of groups."""

    #: Which of the composed ones, by its place.
    base: int
    #: Overrides of values, parsed; and all lines that Hydra notes as the run's own.
    values: list[Any]
    task: list[str] | None
    #: Where Hydra stores what it makes of those lines (1.3), that.
    dirname: str | None


def apply(config: Any, recipe: Recipe) -> None:
    """Do it in place."""
    if recipe.values:
        ConfigLoaderImpl._apply_overrides_to_config(recipe.values, config)
    if recipe.task is not None:
        config.hydra.overrides.task = recipe.task
    if recipe.dirname is not None:
        config.hydra.job.override_dirname = recipe.dirname


def form(node: Any) -> Any:
    """All there is to a configuration, with the types and flags of every node, to compare two."""
    about = {
        name: dict(value) if name == "resolver_cache" else value
        for name, value in vars(node._metadata).items()
    }
    content = node.__dict__["_content"] if isinstance(node, (DictConfig, ListConfig)) else None
    if isinstance(content, dict):
        return about, {key: form(child) for key, child in content.items()}
    if isinstance(content, list):
        return about, [form(child) for child in content]
    return about, content if content is not None else node._value()
