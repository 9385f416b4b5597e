"""What the calls take: the local rank, the device, and how both grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.environments import LAUNCHES, TORCHRUN, fill, numbers, uuids
from benchmarks.measure import Job, Taken, run_jobs
from benchmarks.report import Row, Section

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rig import Rig

ONE, EVERY, RANK = "floor: one name", "floor: every family's name", "safedev.resolve_local_rank()"
RANK_PEERS = (
    "torch.distributed.get_node_local_rank(0)",
    "lightning, the class that the caller names",
    "submitit.JobEnvironment().local_rank",
    "clusterscope.get_job().get_local_rank()",
)
COUNT, ALL = "floor: count + device", "floor: all that is to be read"
ORDINAL, AUTO = "safedev.select_device(1)", "safedev.select_device()"
REFUSED, FALLBACK = "safedev.select_device(10**6), refused", "safedev.select_device(10**6), falling back"
LIGHTNING = "lightning _parse_gpu_ids([1])"
DEVICE_PEERS = (LIGHTNING, "torch.accelerator.current_accelerator(check_available=True)")
WAKING_PEERS = ("accelerate PartialState().device", "ultralytics select_device('1')")
FOUR = {"CUDA_VISIBLE_DEVICES": "2,3,4,5"}
SPLIT, PARSER, GUARD = "floor: split and int", "torch's parser of the mask", "safedev.guard_visible_devices()"
UUIDS, BY_UUID = "floor: count + every UUID", "safedev.select_device(UUID of the last)"


class Calls:
    """Jobs that are run together, and the rows that are made of them."""

    def __init__(self, rig: Rig | None, rounds: int, shim: str | None) -> None:
        self.rig, self.rounds, self.shim = rig, rounds, shim

    def run(self, jobs: Iterable[Job]) -> list[Taken]:
        return run_jobs(self.rig, jobs, rounds=self.rounds, shim=self.shim)

    def unit(self, value: float) -> str:
        return f"{value / 1000:.1f} k instr." if self.shim else f"{value / 1000:.1f} µs"

    def rows(self, taken: Taken, floor: str, limits: dict[str, float], right: str | None = None) -> Iterable[Row]:
        for name in taken.job.subjects:
            where = taken.job.name
            if name in taken.skipped:
                yield Row(what=shown(name), where=where, note=f"left out: {taken.skipped[name][:90]}")
                continue
            answer = taken.answers.get(name)
            note = f"another answer: {answer}" if right is not None and answer not in {None, right} else ""
            yield Row(
                what=shown(name),
                where=where,
                took=self.unit(taken.median(name) or 0.0),
                ratio=taken.ratio(name, floor),
                most=limits.get(name),
                note=note,
            )


def shown(name: str) -> str:
    if name.startswith("floor: ") or not name.endswith((")", "rank", "device", "refused", "back", "loaded")):
        return name
    call, comma, rest = name.partition("), ")
    return f"`{call})`, {rest}" if comma and rest[:1].islower() else f"`{name}`"


def local_rank(calls: Calls) -> Section:
    peers = RANK_PEERS
    jobs = [Job(name=name, subjects=(ONE, EVERY, RANK, *peers), env=env) for name, env in LAUNCHES.items()]
    sizes = (50, 500, 5000)
    jobs += [Job(name=f"{n} variables", subjects=(EVERY, RANK), env=TORCHRUN | fill(n - 12)) for n in sizes]
    rows: list[Row] = []
    taken = calls.run(jobs)
    for one in taken[: len(LAUNCHES)]:
        right = "0" if one.job.name == "none" else "1"
        rows += calls.rows(one, EVERY, {RANK: 1.5}, right)
    rows += growth(calls, taken[len(LAUNCHES) :], RANK, EVERY, 1.1)
    return Section(title="`resolve_local_rank()`", floor="every family's name, 14 of them, read once", rows=tuple(rows))


def growth(calls: Calls, taken: list[Taken], ours: str, floor: str, most: float) -> Iterable[Row]:
    """What *ours* takes, in floors, with many variables over the same with few."""
    first = taken[0].ratio(ours, floor)
    for one in taken:
        now = one.ratio(ours, floor)
        against = now / first if now and first else None
        took = calls.unit(one.median(ours) or 0.0)
        limit = most if one is not taken[0] else None
        yield Row(what=shown(ours), where=one.job.name, took=took, ratio=against, most=limit, note="over 50 variables")


def device(calls: Calls) -> Section:
    both = (COUNT, ALL, ORDINAL, AUTO, REFUSED, FALLBACK)
    launched = (ALL, ORDINAL, AUTO, REFUSED)
    jobs = [
        Job(name="asleep", subjects=(*both, LIGHTNING), env=FOUR),
        Job(name="awake", subjects=(*both, *DEVICE_PEERS, *WAKING_PEERS), env=FOUR, awake=True),
        Job(name="asleep, torchrun", subjects=launched, env=FOUR | TORCHRUN),
        Job(name="awake, torchrun", subjects=launched, env=FOUR | TORCHRUN, awake=True),
        Job(name="no GPU", subjects=(COUNT, ALL, AUTO), gpus=0),
    ]
    rows: list[Row] = []
    for one in calls.run(jobs):
        known = {ORDINAL: 2.0, AUTO: 2.0, REFUSED: 6.0} if one.job.awake else {ORDINAL: 1.5, AUTO: 1.5, REFUSED: 4.0}
        rows += calls.rows(one, ALL, known if one.job.gpus else {})
    return Section(title="`select_device()`", floor=ALL.removeprefix("floor: "), rows=tuple(rows))


def first_call(calls: Calls) -> Section:
    """Each subject in a fork of its own, since a call can be the first only once."""
    loaded = ("safedev.select_device(1), its modules loaded", "safedev.select_device(), its modules loaded")
    names = (
        COUNT,
        *loaded,
        "import safedev, select_device()",
        "import accelerate, PartialState().device",
        "import lightning.fabric, _parse_gpu_ids([1])",
    )
    jobs = [Job(name="torch is imported", subjects=(name,), env=FOUR, first=True) for name in names]
    rounds = 1 if calls.shim else max(3, calls.rounds // 2)
    takings = calls.run(jobs * rounds)
    took = {name: [one.took.get(name, [0.0])[0] for one in takings[n :: len(jobs)]] for n, name in enumerate(names)}
    skipped = {name: why for one in takings for name, why in one.skipped.items()}
    job = Job(name="torch is imported", subjects=names, env=FOUR, first=True)
    together = Taken(job=job, took=took, answers={}, skipped=skipped)
    rows = tuple(calls.rows(together, COUNT, dict.fromkeys(loaded, 2.5)))
    return Section(title="the first call", floor="torch's first count, which loads NVML", rows=rows)


def sizes(calls: Calls) -> Section:
    jobs, limits = [], []
    for gpus in (1, 8, 64, 128):
        for kind, env in (
            ("no mask", {}),
            ("numbers", {"CUDA_VISIBLE_DEVICES": numbers(gpus)}),
            ("UUIDs", {"CUDA_VISIBLE_DEVICES": uuids(gpus)}),
        ):
            jobs.append(Job(name=f"{gpus} GPUs, {kind}", subjects=(COUNT, AUTO, LIGHTNING_FIRST), gpus=gpus, env=env))
            limits.append({AUTO: 1.5} if gpus == 128 and kind != "no mask" else {})
        jobs.append(Job(name=f"{gpus} GPUs, by UUID", subjects=(UUIDS, BY_UUID), gpus=gpus))
        limits.append({})
    for entries in (8, 64, 512, 4096):
        env = {"CUDA_VISIBLE_DEVICES": numbers(entries)}
        jobs.append(Job(name=f"mask of {entries} numbers", subjects=(COUNT, AUTO), gpus=1024, env=env))
        limits.append({AUTO: 1.1} if entries == 4096 else {})
    env = {"CUDA_VISIBLE_DEVICES": uuids(512)}
    jobs.append(Job(name="mask of 512 UUIDs", subjects=(COUNT, AUTO), gpus=512, env=env))
    limits.append({})
    rows: list[Row] = []
    for one, limit in zip(calls.run(jobs), limits, strict=True):
        rows += calls.rows(one, one.job.subjects[0], limit)
    rows += reading(calls)
    many = [
        Job(name=f"{n} variables", subjects=(ALL, AUTO), env=FOUR | TORCHRUN | fill(n - 12)) for n in (50, 500, 5000)
    ]
    rows += growth(calls, calls.run(many), AUTO, ALL, 1.3)
    return Section(title="growth", floor="torch's count (by UUID: and every UUID)", rows=tuple(rows))


LIGHTNING_FIRST = "lightning _parse_gpu_ids([0])"


def reading(calls: Calls) -> Iterable[Row]:
    """The mask alone."""
    jobs = [
        Job(name=f"mask of {n} numbers", subjects=(SPLIT, PARSER, GUARD), env={"CUDA_VISIBLE_DEVICES": numbers(n)})
        for n in (8, 512, 4096)
    ]
    for one in calls.run(jobs):
        yield from calls.rows(one, SPLIT, {GUARD: 6.0})


def on_this_machine(rounds: int) -> Section:
    """The GPUs of this machine, if it has any: what was measured over pretend ones, where NVML and CUDA take time."""
    calls = Calls(None, rounds, None)
    pairs = (
        ("torch.cuda.device_count()", "safedev.select_device(0)"),
        ("torch.cuda.set_device(0)", "safedev.set_device(0)"),
    )
    rows: list[Row] = []
    for floor, ours in pairs:
        following = calls.run([Job(name="next call", subjects=(floor, ours))])
        rows += calls.rows(following[0], floor, {ours: 1.2})
        job = Job(name="first call", subjects=(floor, ours), first=True)
        alone = [Job(name="first call", subjects=(one,), first=True) for one in (floor, ours)]
        takings = calls.run(alone * rounds)
        took = {
            one: [taking.took.get(one, [0.0])[0] for taking in takings[n::2]] for n, one in enumerate((floor, ours))
        }
        rows += calls.rows(Taken(job=job, took=took, answers={}, skipped=takings[1].skipped), floor, {ours: 1.2})
    return Section(title="on a GPU of this machine", floor="torch's own call", rows=tuple(rows))
