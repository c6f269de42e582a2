"""The comparison: what clients were told, what Postgres says, and what the provider counted. Pure, so that it can be
shown to fail."""

import dataclasses

OPEN, SUCCEEDED, FAILED, NOT_SENT = "open", "succeeded", "failed", "not_dispatched"


@dataclasses.dataclass(frozen=True)
class Effect:
    """As Postgres has it at the end."""
    id: str
    outcome: str      # open, succeeded, failed or not_dispatched
    by_person: bool   # the settlement is somebody's word
    conflict: bool = False
    odd: bool = False  # the provider was told to make two records of it, or another one than was asked for


@dataclasses.dataclass(frozen=True)
class Counted:
    """As the provider has it."""
    writes: int   # that arrived, whole or in part
    applied: int


@dataclasses.dataclass(frozen=True)
class Limit:
    reserved: int
    exposed: int
    consumed: int
    held: int            # as the facts say
    held_unknown: int
    spent: int


def broken_promises(told, operations, effects, counted, limits):
    """Every violation as (promise, what). `told`: (effect, status) pairs; `operations`: name -> effects named for it;
    `effects`: id -> Effect; `counted`: id -> Counted; `limits`: a list of Limit."""
    for id, count in sorted(counted.items()):
        if count.writes > 1:
            yield "second write", f"{id} was written {count.writes} times"
        if id not in effects:
            yield "unknown write", f"{id} was written and is not in Postgres"
    for id in sorted({effect for effect, _ in told} - set(effects)):
        yield "lost", f"{id} was accepted and is gone"
    for name, named in sorted(operations.items()):
        if len(named) > 1:
            yield "operation", f"{name} became {', '.join(sorted(named))}"
    for effect in effects.values():
        count = counted.get(effect.id, Counted(0, 0))
        if effect.outcome == OPEN:
            yield "stuck", f"{effect.id} is open at the end"
        elif effect.conflict and not effect.odd:
            yield "conflict", f"{effect.id} is in conflict"
        elif effect.outcome == SUCCEEDED and count.applied == 0:
            yield "false success", f"{effect.id} succeeded and the provider has nothing"
        elif effect.outcome in (FAILED, NOT_SENT) and count.applied > 0:
            yield "false failure", f"{effect.id} is {effect.outcome} and the provider applied it"
        elif effect.outcome == NOT_SENT and count.writes > 0:
            yield "false failure", f"{effect.id} was never sent and the provider got it"
    for id, status in told:
        now = effects.get(id)
        if now is not None and status in (SUCCEEDED, FAILED) and now.outcome != status:
            if not (status == FAILED and now.outcome == NOT_SENT):  # refused at dispatch is told as failed
                yield "taken back", f"a client was told that {id} {status}, and it is {now.outcome}"
    for number, limit in enumerate(limits):
        if (limit.reserved, limit.exposed, limit.consumed) != (limit.held, limit.held_unknown, limit.spent):
            yield "hold", f"limit {number} has {limit}"
