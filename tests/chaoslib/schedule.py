"""The faults of a run, made from its seed before it begins: what happens when, to whom, for how long."""

import dataclasses
import random

SERVICES = ["ingest-1", "ingest-2", "dispatcher-1", "dispatcher-2", "dispatcher-3", "reconciler-1", "reconciler-2",
            "scheduler-1", "scheduler-2"]
# Those that claim and send are hit more often than the others.
KILLED = [*SERVICES, "dispatcher-1", "dispatcher-2", "dispatcher-3"]

# Of each kind so many a minute, as far as time lets it.
RATES = {"kill": 30, "pause": 8, "link": 20, "cut_database": 6, "cut_redis": 4, "flush_redis": 2, "halt": 1,
         "pause_kafka": 1, "restart_redis": 0.5, "restart_database": 0.5, "restart_kafka": 0.2}

MODES = ["reset_before", "reset_after", "black_hole", "delay"]
LINKED = ["provider", "provider", "postgres", "redis"]  # the provider's is disturbed twice as often


@dataclasses.dataclass(frozen=True)
class Event:
    at: float       # seconds from the start
    kind: str
    target: str
    lasts: float    # seconds until it is undone; 0: it is over at once

    def __str__(self):
        return f"{self.at:8.2f}  {self.kind:<17} {self.target:<15} {self.lasts:.2f}"


def target_of(kind, chance):
    if kind == "kill":
        return chance.choice(KILLED)
    if kind == "pause":
        return chance.choice(KILLED)
    return f"{chance.choice(LINKED)}:{chance.choice(MODES)}" if kind == "link" else ""


def lasts_of(kind, chance):
    """A pause may be longer than a lease and a provider's time-out together."""
    return {"kill": chance.uniform(0, 1.5), "pause": chance.choice([0.2, 0.8, 1.5, 3.0]), "link": chance.uniform(0.2, 1.5),
            "halt": chance.uniform(0.2, 1.5), "pause_kafka": chance.uniform(0.5, 4),
            "restart_database": 0.5}.get(kind, 0)


def schedule_make(seed, minutes):
    chance = random.Random(seed)
    events = []
    for kind, rate in RATES.items():
        at = 0.0
        while (at := at + chance.expovariate(rate / 60)) < minutes * 60:
            events.append(Event(at, kind, target_of(kind, chance), lasts_of(kind, chance)))
    return sorted(events, key=lambda e: (e.at, e.kind))
