"""The files of the test Grid Engine: its cell, its settings, and what `qconf` is told at first."""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from . import disk

ROOT = "/opt/sge"
SPOOL = "/var/spool/testbed-sge"
BINARIES = "/usr/lib/gridengine"
#: As login shells of a site read it; other shells have none of it.
SETTINGS = f"{ROOT}/default/common/settings.sh"
PROFILE = "etc/profile.d/sge.sh"
SLOTS = 4
GPUS = {"h2": 2}

_BOOTSTRAP = f"""\
admin_user              sgeadmin
default_domain          none
ignore_fqdn             true
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         {SPOOL}/spooldb
binary_path             {BINARIES}
qmaster_spool_dir       {SPOOL}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""
#: What differs from a site's defaults: mostly clocks, which are short.
_GLOBAL = {
    "execd_spool_dir": f"{SPOOL}/execd",
    "mailer": "/bin/true",
    "load_report_time": "00:00:03",
    "max_unheard": "00:00:10",
    "reschedule_unknown": "00:00:05",
    "execd_params": "ENABLE_ADDGRP_KILL=true",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false"
    " sharelog=00:00:00 accounting_flush_time=00:00:00",
}
_SCHEDULER = """\
algorithm default
schedule_interval 0:0:1
maxujobs 0
queue_sort_method load
job_load_adjustments NONE
load_adjustment_decay_time 0:0:0
load_formula slots
schedd_job_info {tells}
flush_submit_sec 1
flush_finish_sec 1
params none
reprioritize_interval 0:0:0
halftime 168
usage_weight_list cpu=1.000000,mem=0.000000,io=0.000000
compensation_factor 5.000000
weight_user 0.250000
weight_project 0.250000
weight_department 0.250000
weight_job 0.250000
weight_tickets_functional 0
weight_tickets_share 0
share_override_tickets TRUE
share_functional_shares TRUE
max_functional_jobs_to_schedule 200
report_pjob_tickets TRUE
max_pending_tasks_per_job 50
halflife_decay_list none
policy_hierarchy OFS
weight_ticket 0.010000
weight_waiting_time 0.000000
weight_deadline 3600000.000000
weight_urgency 0.100000
weight_priority 1.000000
max_reservation 0
default_duration INFINITY
"""
_ENVIRONMENT = """\
pe_name {name}
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule {rule}
control_slaves TRUE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
#: Parallel environments: all slots on one host, spread over several, or two on each.
ENVIRONMENTS = {"smp": "$pe_slots", "mpi": "$round_robin", "pairs": "2"}
_NONE = (
    "load_thresholds suspend_thresholds ckpt_list prolog epilog starter_method suspend_method"
    " resume_method terminate_method owner_list user_lists xuser_lists subordinate_list"
    " complex_values projects xprojects calendar"
)
_LIMITS = "rt cpu fsize data stack core rss vmem"
_HOST = "load_scaling complex_values user_lists xuser_lists projects xprojects usage_scaling"


def scheduler(tells: bool) -> str:
    """`tells`: it says of every job that waits why it does."""
    return _SCHEDULER.format(tells=str(tells).lower())


def environment(name: str) -> str:
    return _ENVIRONMENT.format(name=name, rule=ENVIRONMENTS[name])


def host(name: str) -> str:
    values = dict.fromkeys(_HOST.split(), "NONE")
    if name in GPUS:
        values["complex_values"] = f"gpu={GPUS[name]}"
    return _lines({"hostname": name, **values, "report_variables": "NONE"})


def host_group(names: Iterable[str]) -> str:
    return _lines({"group_name": "@allhosts", "hostlist": " ".join(names)})


def queue(name: str, start_mode: str) -> str:
    limits = {f"{soft}_{of}": "INFINITY" for of in _LIMITS.split() for soft in ("s", "h")}
    settings = {
        "qname": name,
        "hostlist": "@allhosts",
        "seq_no": "0",
        "nsuspend": "1",
        "suspend_interval": "00:05:00",
        "priority": "0",
        "min_cpu_interval": "00:05:00",
        "processors": "UNDEFINED",
        "qtype": "BATCH INTERACTIVE",
        "pe_list": " ".join(ENVIRONMENTS),
        "rerun": "FALSE",
        "slots": str(SLOTS),
        "tmpdir": "/tmp",
        "shell": "/bin/bash",
        "shell_start_mode": start_mode,
        "notify": "00:00:10",
        "initial_state": "default",
    }
    return _lines({**settings, **dict.fromkeys(_NONE.split(), "NONE"), **limits})


def seed(upper: Path, master: str) -> None:
    """What each host knows of its Grid Engine; only the master has the state of it."""
    admin = pwd.getpwnam("sgeadmin")
    common = upper / ROOT[1:] / "default/common"
    common.mkdir(parents=True)
    for link in ("bin", "lib", "util", "utilbin"):
        (upper / ROOT[1:] / link).symlink_to(f"/var/lib/gridengine/{link}")
    disk.put(common / "bootstrap", _BOOTSTRAP)
    disk.put(common / "act_qmaster", f"{master}\n")
    disk.put(common / "cluster_name", "msc\n")
    settings = f"SGE_ROOT={ROOT}\nSGE_CELL=default\nPATH={BINARIES}:$PATH\n"
    disk.put(common / "settings.sh", f"{settings}export SGE_ROOT SGE_CELL PATH\n")
    profile = upper / PROFILE
    profile.parent.mkdir(parents=True, exist_ok=True)
    disk.put(profile, f". {SETTINGS}\n")
    spool = upper / SPOOL[1:]
    for folder in ("qmaster/job_scripts", "spooldb", "execd"):
        (spool / folder).mkdir(parents=True)
    disk.put(spool / "global", global_configuration())
    for path in (spool, *spool.rglob("*"), common, *common.iterdir()):
        os.chown(path, admin.pw_uid, admin.pw_gid)


def global_configuration() -> str:
    lines = Path("/usr/share/gridengine/default-configuration").read_text().splitlines()
    told = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return _lines({**{words[0]: words[-1] for words in told}, **_GLOBAL})


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in settings.items())
