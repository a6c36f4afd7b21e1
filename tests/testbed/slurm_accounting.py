"""The same Slurm with accounts: slurmdbd and its database on the access node, for `sacct`.

Its controller forgets jobs within seconds of their end: then only the accounts know how they ended.
It counts the memory that jobs take, and ends those that take more than they asked for.
"""

from . import disk
from .slot import TestbedError
from .slurm import ACCESS, Slurm, check_programs
from .waiting import wait_until

PROGRAMS = ("slurmdbd", "mariadbd", "sacct", "sacctmgr")
TABLES = "/usr/share/mysql/mysql_system_tables"
DATA = "/var/lib/testbed-accounts"
SOCKET = "/run/testbed-accounts.sock"
LOG = "/var/log/testbed-accounts.log"

_SETTINGS = {
    "MinJobAge": "2",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=1",
    "JobAcctGatherParams": "OverMemoryKill",
}
_DBD = f"""\
AuthType=auth/munge
DbdHost={ACCESS}
DbdAddr=127.0.0.1
SlurmUser=root
LogFile=/var/log/testbed-slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""
_USER = "create or replace user slurm@127.0.0.1 identified by 'slurm';\n"
_INIT = f"{_USER}grant all on slurm_acct_db.* to slurm@127.0.0.1;\n"
#: Nothing of it outlives the test, so nothing need reach a disk.
_DATABASE = (
    "mariadbd --no-defaults --user=root --skip-name-resolve --innodb-log-file-size=8M"
    " --innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0"
    f" --datadir={DATA} --socket={SOCKET} --bind-address=127.0.0.1"
)


class AccountedSlurm(Slurm):
    def up(self) -> None:
        check_programs(PROGRAMS)
        super().up()

    def stop_accounts(self) -> None:
        """Kill slurmdbd: `sacct` gets no answer."""
        self._kill("slurmdbd")

    def start_accounts(self) -> None:
        self._command(ACCESS, "slurmdbd")
        wait_until(lambda: self._succeeds("sacctmgr", "-n", "show", "cluster"), timeout=30)

    def restore(self) -> None:
        super().restore()
        if not self._daemon_pid("slurmdbd"):
            self.start_accounts()

    # Inner workings

    def _prepare(self) -> None:
        super()._prepare()
        for name in self.names:
            config = self._taken.disk / name / "upper/etc/slurm/slurm.conf"
            config.write_text(_accounted(config.read_text()))
        upper = self._taken.disk / ACCESS / "upper"
        disk.put(upper / "etc/slurm/slurmdbd.conf", _DBD, mode=0o600)
        disk.put(upper / "etc/slurm/accounts.sql", _INIT)
        (upper / DATA[1:]).mkdir(parents=True)

    def _start_slurm(self, name: str) -> None:
        if name == ACCESS:
            self._start_database()
            self.start_accounts()
            self._answer("sacctmgr", "--immediate", "add", "cluster", "cedar")
        super()._start_slurm(name)

    def _start_database(self) -> None:
        if not (self.root(ACCESS) / DATA[1:] / "mysql").exists():
            tables = f"cat {TABLES}.sql {TABLES}_data.sql"
            script = f"(printf 'create database mysql;\\nuse mysql;\\n'; {tables})"
            self._command(ACCESS, "sh", "-c", f"{script} | {_DATABASE} --bootstrap 2>{LOG}")
        init = "--init-file=/etc/slurm/accounts.sql"
        self._command(ACCESS, "sh", "-c", f"setsid {_DATABASE} {init} >>{LOG} 2>&1 </dev/null &")
        wait_until((self.root(ACCESS) / SOCKET[1:]).exists, timeout=30)

    def _succeeds(self, *argv: str) -> bool:
        try:
            self._command(ACCESS, *argv)
        except TestbedError:
            return False
        return True


def _accounted(config: str) -> str:
    kept = [line for line in config.splitlines() if line.partition("=")[0] not in _SETTINGS]
    ours = [f"{name}={value}" for name, value in _SETTINGS.items()]
    return "\n".join([*kept, *ours]) + "\n"
