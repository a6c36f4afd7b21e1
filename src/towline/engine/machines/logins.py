"""How a person logs in to a machine that wants one."""

from towline.api.places import LoginView
from towline.backends.base import MachineAccess
from towline.hosts.ssh import needs_person


def login_of(driver: MachineAccess) -> LoginView | None:
    """The command that logs in; None where that is not needed, or would not help."""
    command = driver.host.login()
    if command is None or (driver.error is not None and not needs_person(driver.error)):
        return None
    if driver.is_connected:
        return None
    return {"machine": driver.name, "target": driver.name, "command": command}
