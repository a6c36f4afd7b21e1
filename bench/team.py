"""A team's scheduler alone: 50 nodes, 200 users; what a turn and the order of the queue cost."""

import argparse
import random
import time

from towline.core.scheduling.explain import in_turn
from towline.core.scheduling.scheduler import Scheduler, Waiting
from towline.model.machine import Gpu, Machine
from towline.model.request import GpuNeed, Group, Need, Request
from towline.model.team.rules import Rulebook, UseLimits

NODES, USERS, ENDS = 50, 200, 1000
MODEL = "GeForce GTX 1070"
GROUPS = ("staff", "students", "guests")


def node(number: int) -> Machine:
    """Eight GPUs each; every fifth node is for staff, and one GPU of every third for students."""
    gpus = tuple(
        Gpu(n, MODEL, 8192, groups=("students",) if n == 0 and number % 3 == 0 else ())
        for n in range(8)
    )
    return Machine(
        f"n{number}",
        32.0,
        131_072,
        gpus,
        clusters=("nodes",),
        groups=("staff",) if number % 5 == 0 else (),
        aliases=(("gtx1070", MODEL),),
        exact_names=True,
    )


def requests() -> list[Request]:
    needs = [Need(cpus=0, gpus=(GpuNeed(count, "gtx1070"),)) for count in (1, 2, 4, 8)]
    return [Request((Group(1, need),)) for need in needs] + [Request((Group(1, Need()),))]


def main(queued: tuple[int, ...]) -> None:
    chance, shapes = random.Random(1), requests()
    users = {f"user{n}": frozenset({GROUPS[n % 3]}) for n in range(USERS)}
    limits = {f"user{n}": UseLimits(gpus=8) for n in range(0, USERS, 10)}
    print(f"{NODES} nodes, {USERS} users, {len(limits)} of them limited")
    print(f"{'queued':>8} {'µs/ended':>10} {'ms/order':>10}")
    for count in queued:
        scheduler, now = Scheduler(), 0.0
        scheduler.rules.change(Rulebook(users, limits))
        for number in range(NODES):
            scheduler.see(node(number))
        for number in range(1, count + 1):
            owner = f"user{int(chance.random() ** 3 * USERS)}"
            request = shapes[int(chance.random() * len(shapes))]
            scheduler.submit(Waiting(number, "nodes", request, owner, submitted=number * 0.01))
        running = [one.id for one in scheduler.decide(now, 10_000)]
        began, ended = time.process_time(), 0
        while running and ended < ENDS:
            now += 1.0
            scheduler.release(running.pop(int(chance.random() * len(running))), now)
            running += [one.id for one in scheduler.decide(now)]
            ended += 1
        turn_us = 1e6 * (time.process_time() - began) / max(1, ended)
        began = time.process_time()
        for _ in range(10):
            in_turn(scheduler, "nodes", now)
        order_ms = 1e3 * (time.process_time() - began) / 10
        print(f"{count:>8,} {turn_us:>10.1f} {order_ms:>10.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queued", nargs="*", type=int, default=[1_000, 10_000])
    main(tuple(parser.parse_args().queued))
