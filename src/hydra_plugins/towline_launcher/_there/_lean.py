"""Hydra's `run_job`, with less copying: two thirds of its 19 ms are deep copies and YAML.

Names inside Hydra are replaced, only in the process of a run, only for the versions that were read,
and each only where it was found, beforehand and on this application's own configuration, to make
what Hydra's makes. Otherwise Hydra's stays.
"""

import copy
import pickle
import types

import hydra
import yaml
from hydra.conf import HydraConf
from hydra.core import utils
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_omega_conf_dumper

from ._recipes import form

#: What was read: how `run_job` uses the names that are replaced here.
VERSIONS = ("1.3.", "1.4.")
#: The parts of Hydra's own node that differ between runs of one choice of groups.
_OWN = ("job", "overrides", "runtime", "sweep")


class Lean:
    """What can be replaced for runs of one configuration."""

    def __init__(self, config):
        self.replaced = {}
        #: Part of Hydra's node -> its lines in hydra.yaml.
        self.parts = {}
        if not hydra.__version__.startswith(VERSIONS):
            return
        for name, prove, replacement in (
            ("copy", self._copies_alike, types.SimpleNamespace(deepcopy=copied)),
            ("set_config", self._sets_alike, set_config),
            ("_save_config", self._saves_alike, self._save_config),
        ):
            try:
                if prove(config):
                    self.replaced[name] = replacement
            except Exception:
                pass  # It is Hydra's own, then.

    def install(self):
        """In the process of a run, for good."""
        for name, replacement in self.replaced.items():
            if name == "set_config":
                HydraConfig.set_config = replacement
            else:
                setattr(utils, name, replacement)

    def _copies_alike(self, config):
        masked = OmegaConf.masked_copy(config, "hydra")
        masked.hydra._set_parent(config)
        return all(form(copied(one)) == form(copy.deepcopy(one)) for one in (config, masked))

    def _sets_alike(self, config):
        theirs, ours = (types.SimpleNamespace(cfg=None) for _ in range(2))
        HydraConfig.set_config(theirs, copy.deepcopy(config))
        set_config(ours, copy.deepcopy(config))
        return form(theirs.cfg) == form(ours.cfg)

    def _saves_alike(self, config):
        node = OmegaConf.masked_copy(config, "hydra")
        whole = OmegaConf.to_container(node, resolve=False, enum_to_str=True)["hydra"]
        self.parts = {name: dumped({name: value}) for name, value in whole.items()}
        return self.text(node) == OmegaConf.to_yaml(node)

    def text(self, masked):
        """What `OmegaConf.to_yaml` gives: long lines are broken as in the whole."""
        node = masked._get_node("hydra")
        lines = []
        for name in node.__dict__["_content"]:
            if name in _OWN:
                part = node._get_node(name)
                own = OmegaConf.to_container(part, resolve=False, enum_to_str=True)
                lines.append(dumped({name: own}))
            else:
                lines.append(self.parts[name])
        return "hydra:\n" + "".join(lines)

    def _save_config(self, cfg, filename, output_dir):
        is_hydras = filename == "hydra.yaml" and list(cfg.__dict__["_content"]) == ["hydra"]
        text = self.text(cfg) if is_hydras else OmegaConf.to_yaml(cfg)
        output_dir.mkdir(parents=True, exist_ok=True)
        with open(str(output_dir / filename), "w", encoding="utf-8") as file:
            file.write(text)


def dumped(part):
    """Its lines below `hydra:`."""
    text = yaml.dump(
        {"hydra": part},
        default_flow_style=False,
        allow_unicode=True,
        sort_keys=False,
        Dumper=get_omega_conf_dumper(),
    )
    return text.split("\n", 1)[1]


def copied(config):
    """A deep copy, by pickle where that can be."""
    if not isinstance(config, DictConfig) or not isinstance(config.__dict__["_content"], dict):
        return copy.deepcopy(config)
    # A node of it may belong to another one, as Hydra's own node does.
    nodes = [config, *config.__dict__["_content"].values()]
    parents = [node.__dict__["_parent"] for node in nodes]
    try:
        for node in nodes:
            node.__dict__["_parent"] = None if node is config else config
        made = pickle.loads(pickle.dumps(config))
    except Exception:
        made = None
    finally:
        for node, parent in zip(nodes, parents, strict=True):
            node.__dict__["_parent"] = parent
    if made is None:
        return copy.deepcopy(config)
    made.__dict__["_parent"] = parents[0]
    return made


def set_config(self, cfg):
    """`HydraConfig.set_config`, with its copy by pickle."""
    assert cfg is not None
    OmegaConf.set_readonly(cfg.hydra, True)
    hydra_node_type = OmegaConf.get_type(cfg, "hydra")
    assert hydra_node_type is not None and issubclass(hydra_node_type, HydraConf)
    node = cfg._get_node("hydra")
    self.cfg = DictConfig(content={})
    made = copied(node)
    made._set_parent(cfg)
    self.cfg.__dict__["_content"]["hydra"] = made
