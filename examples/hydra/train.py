"""An application of Hydra that pretends to train; see docs/sweeps.md."""

import json
import logging
import os
import time
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

log = logging.getLogger(__name__)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config: DictConfig) -> float:
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    cpus = sorted(os.sched_getaffinity(0))
    log.info("training %s on CPUs %s, GPUs [%s]", config.model.name, cpus, gpus)
    time.sleep(config.seconds)
    loss = config.model.learning_rate * config.model.layers
    folder = Path(HydraConfig.get().runtime.output_dir)
    about = {"model": config.model.name, "loss": loss, "cpus": cpus, "gpus": gpus.split(",")}
    (folder / "result.json").write_text(json.dumps(about))
    return loss


if __name__ == "__main__":
    main()
