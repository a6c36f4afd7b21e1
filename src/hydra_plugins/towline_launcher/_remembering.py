"""A loader of configurations that remembers: Hydra composes each run in full, in 35 ms and twice.

Here what is composed in full is each choice of config groups, once; the values of a run are then
applied to a copy of that, by Hydra's own functions. Whatever is not understood goes Hydra's way,
and so does everything once a first run with other keys came out differently.
"""

from __future__ import annotations

import copy
import logging
import os
import pickle
from typing import Any

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import Overrides
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from hydra_plugins.towline_launcher._there._recipes import Recipe, apply, form

log = logging.getLogger("towline")


class Base:
    """The configuration of one choice of groups."""

    def __init__(self, config: Any, noted: list[str], place: int) -> None:
        self.config = config
        self.place = place
        #: What is noted as the run's own whatever its overrides are.
        self.noted = noted
        try:
            self._packed: bytes | None = pickle.dumps(config)
        except Exception:
            self._packed = None

    def copy(self) -> Any:
        return copy.deepcopy(self.config) if self._packed is None else pickle.loads(self._packed)


class RememberingLoader(ConfigLoaderImpl):
    """Hydra's own loader, which composes less."""

    def __init__(self, stock: ConfigLoaderImpl) -> None:
        self.__dict__.update(stock.__dict__)
        self.stock = stock
        self._forget()

    def _forget(self, master: Any = None) -> None:
        self._master = master
        self.bases: list[Base] = []
        self._of_groups: dict[tuple[str, ...], Base] = {}
        #: Line -> it parsed, and whether it chooses a group.
        self._parsed: dict[str, tuple[Any, bool]] = {}
        self._repository: Any = None
        #: Keys of overrides with which it came out as Hydra's own.
        self._proven: set[tuple[Any, ...]] = set()
        self._is_wrong = False
        self._cwd = os.getcwd()

    def load_sweep_config(self, master_config: Any, sweep_overrides: list[str]) -> Any:
        try:
            recipe = self.recipe(master_config, sweep_overrides)
            config = None if recipe is None else self.made(recipe)
        except Exception:
            # Hydra says what is wrong with it in its own words.
            config = None
        if config is None:
            return self.stock.load_sweep_config(master_config, sweep_overrides)
        return config

    def made(self, recipe: Recipe) -> Any:
        """The configuration that comes of a recipe."""
        config = self.bases[recipe.base].copy()
        apply(config, recipe)
        OmegaConf.copy_cache(from_config=self._master, to_config=config)
        return config

    def recipe(self, master: Any, lines: list[str]) -> Recipe | None:
        """How to make what Hydra would compose of these overrides; None: only Hydra can."""
        if master is not self._master or os.getcwd() != self._cwd:
            self._forget(master)
        if self._is_wrong:
            return None
        parsed = [self._look_at(line) for line in lines]
        if any(one.is_hydra_override() or one.is_sweep_override() for one, _ in parsed):
            return None
        base = self._base(
            tuple(line for line, (_, chooses) in zip(lines, parsed, strict=True) if chooses)
        )
        values = [one for one, chooses in parsed if not chooses]
        task = [*base.noted, *(one.input_line for one, _ in parsed)]
        recipe = Recipe(base.place, values, task, self._dirname(base, [one for one, _ in parsed]))
        keys = tuple((one.type, one.key_or_group, one.package) for one, _ in parsed)
        if keys not in self._proven:
            self._prove(recipe, lines)
            self._proven.add(keys)
        return None if self._is_wrong else recipe

    def _look_at(self, line: str) -> tuple[Any, bool]:
        found = self._parsed.get(line)
        if found is None:
            if self._repository is None:
                job = self._master.hydra.job
                _, self._repository = self._parse_overrides_and_create_caching_repo(
                    job.config_name, self._of_hydra()
                )
            [one] = OverridesParser.create().parse_overrides([line])
            chooses = not Overrides(self._repository, [one]).config_overrides
            found = self._parsed[line] = one, chooses
        return found

    def _of_hydra(self) -> list[str]:
        return list(self._master.hydra.overrides.hydra)

    def _base(self, groups: tuple[str, ...]) -> Base:
        found = self._of_groups.get(groups)
        if found is None:
            config = self.stock.load_sweep_config(self._master, list(groups))
            task = list(config.hydra.overrides.task)
            noted = task[: len(task) - len(groups)]
            found = self._of_groups[groups] = Base(config, noted, len(self.bases))
            self.bases.append(found)
        return found

    def _dirname(self, base: Base, parsed: list[Any]) -> str | None:
        """From 1.4 on it is not stored, but made when it is asked for."""
        make = getattr(config_loader_impl, "get_overrides_dirname", None)
        if make is None:
            return None
        options = base.config.hydra.job.config.override_dirname
        return str(
            make(
                overrides=parsed,
                kv_sep=options.kv_sep,
                item_sep=options.item_sep,
                exclude_keys=options.exclude_keys,
            )
        )

    def _prove(self, recipe: Recipe, lines: list[str]) -> None:
        """Compare it with what Hydra makes."""
        theirs = self.stock.load_sweep_config(self._master, list(lines))
        if form(self.made(recipe)) != form(theirs):
            log.debug("this application's configurations are composed in full, one by one")
            self._is_wrong = True


def remember(context: Any) -> None:
    """Have this context compose less; a loader of another kind stays as it is."""
    if type(context.config_loader) is ConfigLoaderImpl:
        context.config_loader = RememberingLoader(context.config_loader)


def recipes_for(
    loader: Any, master: Any, overrides: list[list[str]]
) -> tuple[list[Any], list[Recipe]]:
    """How the configuration of every run is made, and the configurations that they are made of."""
    remembers = isinstance(loader, RememberingLoader)
    made: list[Recipe] = []
    whole: list[Any] = []
    for lines in overrides:
        try:
            recipe = loader.recipe(master, lines) if remembers else None
        except Exception:
            recipe = None
        if recipe is None:
            # Its place is known once all are: those that are shared come first.
            recipe = Recipe(-1 - len(whole), [], None, None)
            whole.append(loader.load_sweep_config(master, lines))
        made.append(recipe)
    bases = [base.config for base in loader.bases] if remembers else []
    for recipe in made:
        if recipe.base < 0:
            recipe.base = len(bases) - 1 - recipe.base
    for config in bases:
        OmegaConf.copy_cache(from_config=master, to_config=config)
    return [*bases, *whole], made
