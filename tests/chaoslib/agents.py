"""Agents as they are: they give up early, ask again with the same key, and sometimes with a new one for the same
operation. What each was told is the first of the three ledgers."""

import collections
import http.client
import random
import threading
import time

from harness import Api

# What the provider may do to one write so that no machine may settle it: two records, another amount or currency than
# was asked for, a status that nobody has heard of. One call in ODD_EVERY meets one of them.
ODDITIES = [("double", {}), ("wrong_amount", {}), ("wrong_currency", {}), ("status_field", {"value": "new_status"})]
ODD_EVERY = 60

Told = collections.namedtuple("Told", "at effect status outcome")


class Agents:
    def __init__(self, urls, key, action, seed, count, sandbox=None):
        """`sandbox`: where the oddities are ordered; without it there are none."""
        self.urls, self.key, self.action, self.seed = urls, key, action, seed
        self.lock = threading.Lock()
        self.told = []         # of every answer that named an effect
        self.operations = collections.defaultdict(set)  # operation -> effects that were named for it
        self.sandbox = sandbox
        self.odd = []          # operations whose write the provider was told to make a mess of
        self.requests = self.errors = 0
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)

    def hear(self, operation, answer):
        data = answer.data if answer.status in (200, 202) else None
        with self.lock:
            self.requests += 1
            if not isinstance(data, dict) or not data.get("effectId"):
                self.errors += 1
                time.sleep(0.02)
                return
            self.told.append(Told(time.time(), data["effectId"], data["status"], data.get("grade")))
            self.operations[operation].add(data["effectId"])

    def ask(self, chance, operation, key, value, wait):
        api = Api(chance.choice(self.urls), self.key, timeout=chance.choice([0.1, 0.5, 2, 5]))
        try:
            self.hear(operation, api.invoke(self.action, value, key=key, wait=wait, operationKey=operation))
            return
        except (OSError, http.client.HTTPException, ValueError):  # none, or an answer that was cut
            with self.lock:
                self.requests += 1
                self.errors += 1
        time.sleep(0.05)

    def make_odd(self, chance, operation, intent):
        do, members = chance.choice(ODDITIES)
        self.sandbox.fault(do, {"kind": "write", "intent": intent}, times=1, **members)
        with self.lock:
            self.odd.append(operation)

    def work(self, n):
        chance = random.Random(f"{self.seed} {n}")
        turn = 0
        while not self.stopping.is_set():
            turn += 1
            name = f"{self.seed}_{n}_{turn}"
            value = {"payment_intent": f"pi_chaos_{name}", "amount": chance.randint(1, 500)}
            if self.sandbox and chance.randrange(ODD_EVERY) == 0:
                self.make_odd(chance, f"op_{name}", value["payment_intent"])
            for again in range(chance.choice([1, 1, 2, 3])):
                key = f"key_{name}" if again == 0 or chance.random() < 0.8 else f"key_{name}_{again}"
                self.ask(chance, f"op_{name}", key, value, chance.choice([0, 0, 1, 3]))
