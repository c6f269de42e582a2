"""The protocol in the database, called as the services call it: one statement a batch, no service between.

A Database is one that `holdfast migrate` made on the Postgres of a fleet; a Caller is one session in it.
"""

import hashlib
import os
import pathlib
import secrets
import subprocess
import threading
import time
import uuid

import psycopg
import psycopg.conninfo
import psycopg.rows

from harness import unique

BIN = pathlib.Path(os.environ["HOLDFAST_BIN"])

# The arrays of accept_batch and settle_batch: name and type of an element.
ACCEPT = {
    "id": "uuid", "environment": "int", "key": "text", "key_hash": "bytea", "body_hash": "bytea",
    "operation": "text", "operation_hash": "bytea", "input_hash": "bytea", "retry_of": "uuid",
    "action": "uuid", "action_name": "text", "action_version": "int", "governed": "boolean",
    "adapter": "text", "destination": "text", "input": "text", "request": "bytea",
    "request_hash": "bytea", "secrets": "text", "provider_key": "text", "dimension": "text",
    "unit": "text", "amount": "bigint", "bound": "text", "resource": "text", "requested_by": "uuid",
    "agent": "text", "run": "text", "span": "text", "has_read_back": "boolean",
    "fault_drill": "boolean", "dispatch_before_s": "int", "gate": "text",
}
SETTLE = {
    "id": "uuid", "kind": "text", "seq": "int", "outcome": "effect_outcome", "reason": "settle_reason",
    "verification": "verification", "status": "int", "response": "bytea", "view": "text",
    "truncated": "boolean", "object": "text", "error": "text", "evidence": "text",
    "sent_at": "timestamptz", "finished_at": "timestamptz", "consumed": "bigint", "reference": "text",
    "partial": "text", "by": "text",
}
REASONS = {"succeeded": "provider_2xx", "failed": "provider_4xx", "not_dispatched": "cancelled"}

# What an environment's limits hold and have consumed, beside what follows from the facts alone.
EXPECTED_LIMITS = """
with holds as (
    select h.limit_id, h.period, a.hold_amount, o.id is not null as open, o.outcome as open_outcome,
           coalesce(x.rehold, 0) as rehold,
           coalesce(k.consumed, s.consumed, case when s.outcome = 'succeeded' then a.hold_amount end) as spent
    from attempts a
    cross join lateral unnest(a.hold_limits, a.hold_periods) h(limit_id, period)
    left join open_effects o on o.id = a.effect_id
    left join settlements s on s.effect_id = a.effect_id
    left join lateral (select c.* from corrections c where c.effect_id = a.effect_id order by c.n desc limit 1) k on true
    left join contradictions x on x.effect_id = a.effect_id and x.n = coalesce(k.n, 0))
select l.id, l.reserved, l.unknown_exposure,
       coalesce(sum(case when h.open then h.hold_amount else h.rehold end), 0)::bigint as held,
       coalesce(sum(case when h.open_outcome = 'unknown' then h.hold_amount else h.rehold end), 0)::bigint as exposed,
       coalesce(sum(h.spent), 0)::bigint as spent,
       coalesce((select sum(u.consumed) from limit_usage u where u.limit_id = l.id), 0)::bigint as consumed
from limits l left join holds h on h.limit_id = l.id
where l.environment_id = %s group by l.id
"""


def new_id():
    """A ULID as uuid."""
    return uuid.UUID(int=(int(time.time() * 1000) << 80) | secrets.randbits(80))


def digest(text):
    return hashlib.sha256(text.encode()).digest()


def statement(function, arrays, more=""):
    named = ", ".join(f"p_{name} := %({name})s::text[]::{kind}[]" for name, kind in arrays.items())
    return f"select * from {function}({named}{more})"


def columns(arrays, items):
    """The parallel arrays, every element as text."""
    return {name: [text_of(item.get(name)) for item in items] for name in arrays}


def text_of(value):
    if value is None:
        return None
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return str(value)


class Database:
    """A database of its own, migrated unless told otherwise. `fleet` lends its Postgres."""

    def __init__(self, fleet, migrated=True):
        self.name = unique("rules")
        self.admin_url = fleet.env["FLEET_DATABASE_ADMIN_URL"]
        self.url = psycopg.conninfo.make_conninfo(fleet.env["HOLDFAST_DATABASE_URL"], dbname=self.name)
        self.callers = []
        self.admin(f"create database {self.name} owner holdfast")
        if migrated:
            done = self.migrate()
            assert done.returncode == 0, done.stderr

    def admin(self, sql):
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(sql)

    def migrate(self, *options, wait=True):
        """`holdfast migrate`, as its owner would: finished, or under way."""
        env = {**os.environ, "HOLDFAST_DATABASE_URL": self.url}
        env.pop("HOLDFAST_BIN", None)
        started = subprocess.Popen([BIN / "holdfast", "migrate", *options], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=env)
        return finished(started) if wait else started

    def caller(self, role="service"):
        """A new session, as the services' role or as the owner; closed with the database."""
        caller = Caller(self, role)
        self.callers.append(caller)
        return caller

    def move_clock(self, offset):
        """Moves the time of all sessions: those there are, and those to come."""
        self.admin(f"alter database {self.name} set holdfast.clock_offset = '{offset}'")
        for caller in self.callers:
            caller.run(f"set holdfast.clock_offset = '{offset}'")

    def end(self):
        for caller in self.callers:
            caller.connection.close()
        self.admin(f"drop database {self.name} with (force)")


def finished(process):
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Caller:
    def __init__(self, database, role="service"):
        self.connection = psycopg.connect(database.url, autocommit=True,
                                          row_factory=psycopg.rows.dict_row)
        self.connection.prepare_threshold = None
        if role == "service":
            self.run("set role holdfast_service")

    def run(self, sql, *parameters, **named):
        """Rows as dicts, [] when there are none to give."""
        cursor = self.connection.execute(sql, named or parameters or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, sql, *parameters):
        """The only row; its value when it has one column."""
        (row,) = self.run(sql, *parameters)
        return next(iter(row.values())) if len(row) == 1 else row

    # What people configure

    def environment(self):
        return self.one("insert into environments (name) values (%s) returning id", unique("env"))

    def limit(self, environment, amount, period="day", unit="usd", **more):
        values = {"id": new_id(), "environment_id": environment, "name": unique("limit"), "unit": unit,
                  "dimension": "money", "period": period, "amount": amount, **more}
        names = ", ".join(values)
        marks = ", ".join(f"%({name})s" for name in values)
        self.run(f"insert into limits ({names}) values ({marks})", **values)
        return values["id"]

    def limit_state(self, limit):
        """amount, consumed in this period, reserved, unknownExposure, available and so on."""
        return self.one("select limit_json(l) from limits l where l.id = %s", limit)

    def figures(self, limit):
        state = self.limit_state(limit)
        return state["consumed"], state["reserved"], state["unknownExposure"]

    # The protocol

    def accept(self, *calls):
        """Accepts calls; each has defaults but its environment. Verdicts in the order of the calls."""
        whole = [complete(call) for call in calls]
        order = sorted(range(len(whole)), key=lambda i: (whole[i]["environment"], whole[i]["key_hash"]))
        rows = self.run(statement("accept_batch", ACCEPT) + " order by ord",
                        **columns(ACCEPT, [whole[i] for i in order]))
        verdicts = [None] * len(whole)
        for i, row in zip(order, rows):
            verdicts[i] = row
        return verdicts

    def accepted(self, environment, **call):
        """One call that has to be accepted: its effect."""
        (row,) = self.accept({"environment": environment, **call})
        assert row["verdict"] == "accepted", row
        return row["effect_id"]

    def claim(self, *ids, lease_ms=60000, provider_ms=60000, claim_id=None, worker="worker-1"):
        """Verdicts by effect."""
        rows = self.run("select * from claim_batch(%s::uuid[], %s, %s, %s, %s, %s)", sorted(ids),
                        claim_id or uuid.uuid4(), worker, uuid.uuid4(), lease_ms, provider_ms)
        return {row["effect_id"]: row for row in rows}

    def claimed(self, environment, lease_ms=60000, provider_ms=60000, **call):
        """Accepts one call and claims it: its effect."""
        effect = self.accepted(environment, **call)
        assert self.claim(effect, lease_ms=lease_ms, provider_ms=provider_ms)[effect]["verdict"] == "claimed"
        return effect

    def unknown(self, environment, **call):
        effect = self.claimed(environment, **call)
        assert self.settle(effect, "unknown") == "unknown"
        return effect

    def settle_all(self, *items):
        """Results by effect."""
        whole = sorted((meant(item) for item in items), key=lambda item: item["id"])
        rows = self.run(statement("settle_batch", SETTLE, ", p_read_ms := 30000, p_confirm_ms := 2000"),
                        **columns(SETTLE, whole))
        return {row["effect_id"]: row["result"] for row in rows}

    def settle(self, effect, outcome, kind="dispatch", **more):
        return self.settle_all({"id": effect, "outcome": outcome, "kind": kind, **more})[effect]

    def sweep(self):
        return {row["effect_id"]: row["result"]
                for row in self.run("select * from sweep(1000, 'scheduler-1', 30000)")}

    def reject(self, effect, reason="cancelled"):
        (row,) = self.run("select * from reject_batch(%s::uuid[], %s, 'because', 'ingest-1')", [effect], reason)
        return row["result"]

    # What came of it

    def state(self, effect):
        return self.one("select stage::text, outcome::text, grade, status, conflict from effect_states where id = %s",
                        effect)

    def settlement(self, effect):
        return self.one("select * from settlements where effect_id = %s", effect)

    def evidence(self, effect):
        return self.run("select kind, text from evidence where effect_id = %s order by n", effect)

    def effect(self, effect):
        """As the wire shows it."""
        return self.one("select doc::json from effect_json(%s::uuid[])", [effect])


def complete(call):
    """A call with everything that ingest would have made of it."""
    key = call.get("key", unique("key"))
    text = call.get("input", '{"amount":500}')
    operation = call.get("operation")
    return {
        "id": new_id(), "key": key, "key_hash": digest(key), "body_hash": digest(text),
        "operation_hash": digest(operation) if operation else None, "input_hash": digest(text),
        "action": uuid.UUID(int=1), "action_name": "refund", "action_version": 1, "governed": True,
        "adapter": "declared", "destination": "127.0.0.1:80", "input": text, "request": b"{}",
        "request_hash": digest("{}"), "secrets": "", "provider_key": unique("pk"), "dimension": "money",
        "unit": "usd", "amount": 500, "bound": "exact", "requested_by": uuid.UUID(int=2),
        "agent": "agent", "has_read_back": True, "fault_drill": False, "dispatch_before_s": 86400, **call,
    }


def meant(item):
    """A settlement with what usually goes with its outcome."""
    kind, outcome = item["kind"], item["outcome"]
    final = outcome in ("succeeded", "failed")
    reason = {"manual": "manual", "reconcile": "provider_record"}.get(kind, REASONS.get(outcome))
    verification = {"manual": "manual", "reconcile": "provider"}.get(kind, "unverified")
    return {
        "seq": 1 if kind in ("dispatch", "sweep") else None,
        "reason": reason if final or outcome == "not_dispatched" else None,
        "verification": verification if final else "unverified",
        "truncated": False, "evidence": f"{kind} says {outcome}", "by": "worker-1", **item,
    }


def blocked(db, caller):
    """True while another session waits for a lock."""
    return db.one("select exists (select 1 from pg_locks where pid = %s and not granted)",
                  caller.connection.info.backend_pid)


class Background(threading.Thread):
    """A call in another thread; `value` gives what it returned, or raises what it raised."""

    def __init__(self, call, *arguments, **named):
        super().__init__(daemon=True)
        self.call = lambda: call(*arguments, **named)
        self.returned = self.raised = None
        self.start()

    def run(self):
        try:
            self.returned = self.call()
        except BaseException as error:
            self.raised = error

    def value(self, timeout=20):
        self.join(timeout)
        assert not self.is_alive(), "it still waits"
        if self.raised:
            raise self.raised
        return self.returned
