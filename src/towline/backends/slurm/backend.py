"""The backend for clusters that are a Slurm: a queue that speaks Slurm's dialect."""

from towline.backends.base import Report
from towline.backends.machines import Machines
from towline.backends.queue.backend import QueueBackend
from towline.backends.slurm.dialect import SlurmDialect


class Slurm(QueueBackend):
    def __init__(self, engine_id: str, report: Report, machines: Machines) -> None:
        super().__init__(SlurmDialect(), engine_id, report, machines)
