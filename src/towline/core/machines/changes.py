"""What has changed about machines since a memo was taken: three counters, and who lives by them.

Decisions are cheap because hardly anything is looked at twice. Whoever found something out notes
the count as of then; while the counter stands, the finding holds.

| counter     | raised when                             | read by                                  |
| ----------- | --------------------------------------- | ---------------------------------------- |
| `any`       | anything about what is free on a        | `ShapeClass.looked_at` (whether a freed  |
|             | machine changed (`MachineIndex.index`)  | machine takes one of its processes)      |
| `free`      | more may fit on a machine that takes    | `Bucket.refused_at` (fitted nowhere)     |
|             | jobs: one of ours ended, others use     |                                          |
|             | less, it was opened, or is kept for     |                                          |
|             | nobody any more (`MachineIndex.ease`)   |                                          |
| `potential` | machines could give something else,     | `Scheduler.impossible`, `barred` and     |
|             | once our jobs have ended: they came,    | `Reservations.most` (machines if empty), |
|             | went, changed, were closed, opened or   | `Bucket.unkept_at` (none can be kept),   |
|             | set aside, others use less, or they are | `Reservations.walked` (nobody who waits  |
|             | kept for nobody any more                | needs any to be kept)                    |

Why that is enough. `any`: the memo is a shortcut within one round, nothing lives on it longer.
`free`: what does not fit will not fit where less is free, so only more of it
matters; a start only takes. `potential`: none of its readers looks at what our own jobs use, which
is what changes all the time. That others use more raises neither: a memo may then promise what is
gone, but every start and every reservation looks at the machine itself (`HostState.choose`).
What depends on who waits is not counted here: a bucket that is new has no memo yet, makes its
class `fresh`, and lets its cluster be walked again.
"""


class Changes:
    """How often what is free changed, more of it was, and what can be had became another."""

    __slots__ = ("any", "free", "potential")

    def __init__(self) -> None:
        self.any = 0
        self.free = 0
        self.potential = 0
