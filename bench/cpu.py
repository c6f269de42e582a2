"""Who used the CPU between two moments: the processes of a fleet, from /proc. A connection of Postgres
goes by the name that its client gave it."""
import os
import pathlib

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def machine():
    names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return {"cores": os.cpu_count(), "cpu": names[0] if names else "unknown"}


class Process:
    """One line of /proc: the parent, and the ticks that it and the children it has buried have used."""

    def __init__(self, pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        self.pid = pid
        self.parent = int(fields[1])
        self.ticks = (int(fields[11]), int(fields[12]))
        self.buried = (int(fields[13]), int(fields[14]))


def processes():
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found[int(entry)] = Process(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                pass  # has ended meanwhile
    return found


def machine_ticks():
    """(busy, all) of the whole machine."""
    fields = [int(field) for field in open("/proc/stat").readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


class Meter:
    """Starts when it is made; read() tells the milliseconds (user, system) of each name since then."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.before = self.ticks_by_name()
        self.machine_before = machine_ticks()
        self.own_before = os.times()

    def roots(self):
        for file in pathlib.Path(self.fleet.dir, "run").glob("*.pid"):
            yield file.stem, int(file.read_text())

    def backend_names(self):
        rows = self.fleet.sql("select pid, coalesce(nullif(application_name, ''), backend_type) from pg_stat_activity")
        return {int(pid): name for pid, name in (line.split("|", 1) for line in rows.splitlines())}

    def ticks_by_name(self):
        all_processes = processes()
        children = {}
        for process in all_processes.values():
            children.setdefault(process.parent, []).append(process)
        total = {}
        for name, pid in self.roots():
            if pid not in all_processes:
                continue
            backends = self.backend_names() if name == "postgres" else {}
            add(total, f"{name} (ended children)", all_processes[pid].buried)
            todo = [all_processes[pid]]
            while todo:
                process = todo.pop()
                todo += children.get(process.pid, [])
                label = f"{name}: {backends.get(process.pid, 'itself')}" if name == "postgres" else name
                add(total, label, process.ticks)
        return total

    def read(self):
        ticks = self.ticks_by_name()
        busy, whole = (b - a for a, b in zip(self.machine_before, machine_ticks()))
        own = os.times()
        used = {"load generator": (own.children_user - self.own_before.children_user,
                                   own.children_system - self.own_before.children_system)}
        for name, (user, system) in ticks.items():
            was_user, was_system = self.before.get(name, (0, 0))
            used[name] = (max(user - was_user, 0) / TICKS_PER_S, max(system - was_system, 0) / TICKS_PER_S)
        ours_s = sum(map(sum, used.values())) + own.user + own.system - self.own_before.user - self.own_before.system
        others_s = max(busy / TICKS_PER_S - ours_s, 0)
        shown = {name: [round(part * 1000) for part in parts] for name, parts in used.items() if sum(parts) > 0.02}
        return {"ms": shown, "all_ms": round(sum(map(sum, used.values())) * 1000),
                "others_percent": 100 * others_s * TICKS_PER_S / whole}


def add(total, name, ticks):
    was = total.get(name, (0, 0))
    total[name] = (was[0] + ticks[0], was[1] + ticks[1])
