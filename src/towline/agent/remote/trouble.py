"""What went wrong, for a log: the module that tells is loaded only where something did."""

import sys


def told() -> str:
    """The traceback of the exception that is being handled."""
    kind, problem = sys.exc_info()[:2]
    try:
        import traceback
    except Exception:  # no file can be opened any more, say
        return "%s: %s\n" % (getattr(kind, "__name__", kind), problem)
    return traceback.format_exc()
