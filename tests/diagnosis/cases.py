"""The cases: each program with its mesh, when it can be asked, and what it should be told to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from milkweed.runtime.records import Launcher

__all__ = ["CASES", "PROGRAMS", "Case", "find"]

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class Case:
    """One program and its verdict.

    `program` is its path below `PROGRAMS`; its folder is the workspace. `options` are those of `running`.
    `ready` matches an output line after which the fault is there or imminent; without `while_running` the
    run is over when it is asked about. `expected_ranks` is "" where any will do. The cause should name one
    of `words`; none where they are empty. `note` begins with "constructed" where the fault is played.
    """

    name: str
    kind: str
    program: str
    hosts: int = 2
    procs_per_host: int = 2
    launcher: Launcher = "spmd"
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    while_running: bool = False
    ready: str = ""
    expected_ranks: str = ""
    words: tuple[str, ...] = ()
    note: str = ""


def at(file: str, text: str) -> str:
    """`plain.py:12`: the one line of a file below `PROGRAMS` that has this text."""
    path = PROGRAMS / file
    (line,) = [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return f"{path.name}:{line}"


def _ended(name: str, ranks: str, *words: str, **other: object) -> Case:
    kind = name.partition("/")[0]
    return Case(name, kind, f"{name}.py", expected_ranks=ranks, words=words, **other)  # type: ignore[arg-type]


def _while(name: str, ready: str, ranks: str, *words: str, **other: object) -> Case:
    return _ended(name, ranks, *words, while_running=True, ready=ready, **other)


def find(name: str) -> Case:
    (case,) = [case for case in CASES if case.name == name]
    return case


_FIRST_SIX = (
    _ended("missing_module/plain", "0-3", "sentencepiece"),
    # Each host has a folder of packages of its own; that of the second lacks one.
    _ended("missing_module/pretrain", "2-3", "rotary_ops"),
    _ended("missing_module/finetune", "0-3", "recipes.cosine_long"),
    _ended("missing_module/ablation", "0-3", "lion_pytorch"),
    _ended("missing_module/tracker_on_rank_zero", "0", "trackio_client"),
    _ended("nan_loss/plain", "", "step 4"),
    _while("nan_loss/pretrain", r"4[0-9] batches done", "", "step 23"),
    _while("nan_loss/regress", r"30 updates", "", "step 9"),
    _ended("nan_loss/fsdp_bf16", "", "step 26"),
    _while("nan_loss/accumulated", r"update 40 done", "", "step 10"),
    _ended("left_early/plain", "3", "all_reduce", at("left_early/plain.py", "dist.all_reduce")),
    _while(
        "left_early/finetune",
        r"saving",
        "1",
        at("left_early/finetune.py", "time.sleep(0.2)"),
        at("left_early/finetune.py", "publish(self.model.module"),
        "publish",
        "backward",
    ),
    _while(
        "left_early/scaler",
        r"stopping",
        "2",
        at("left_early/scaler.py", "dist.all_reduce(score"),
        "evaluate",
    ),
    _ended("left_early/token_budget", "2", "all_gather", "budget used up", launcher="torchrun"),
    _while(
        "left_early/wall_clock",
        r"time is up",
        "0",
        at("left_early/wall_clock.py", "time.sleep(0.25)"),
        at("left_early/wall_clock.py", "print(collect"),
        procs_per_host=1,
    ),
    _while(
        "collective_mismatch/plain",
        r"step 4 ",
        "0",
        at("collective_mismatch/plain.py", "dist.broadcast"),
        "broadcast",
    ),
    _while("collective_mismatch/pretrain", r"calibrated", "", "all_gather", "allgather"),
    _while("collective_mismatch/evaluate", r"batch 24 mean", "2", "reduce"),
    _while("collective_mismatch/best_so_far", r"^011 ", "2", "all_gather"),
    _while(
        "collective_mismatch/two_groups",
        r"step 8 ",
        "1",
        at("collective_mismatch/two_groups.py", "dist.all_reduce(tokens"),
    ),
    _ended(
        "out_of_memory/plain",
        "2",
        "memory",
        options={"memory_mb": "700", "memory_ranks": "2"},
    ),
    _ended(
        "out_of_memory/contrastive",
        "",
        at("out_of_memory/contrastive.py", "torch.empty(len(bank)"),
        "memory",
        note="the allocator is refused: no host has that much",
    ),
    _ended(
        "out_of_memory/validate",
        "",
        "memory",
        options={"memory_mb": "700", "memory_ranks": "2-3"},
    ),
    _ended(
        "out_of_memory/loader_workers",
        "",
        "killed",
        options={"memory_mb": "900", "memory_ranks": "2-3"},
    ),
    _ended(
        "out_of_memory/consolidate",
        "0",
        at("out_of_memory/consolidate.py", "return torch.cat"),
        options={"ulimit": "-v 8000000"},
    ),
    _while("straggler/plain", r"step 4 ", "3", at("straggler/plain.py", "time.sleep"), "__getitem__"),
    _while("straggler/pretrain", r'"step": 6,', "1", "encode"),
    _while("straggler/finetune", r"5 steps", "2", "checksums.py"),
    _while(
        "straggler/slow_mount",
        r"'step': 6,",
        "2-3",
        at("straggler/slow_mount.py", "time.sleep"),
        options={"host_env": "1:MOUNT_LATENCY_MS=700"},
    ),
)

_PROGRAM = (
    _ended("environment_drift/plain", "2-3", "tokenlib", options={"host_path": "sites/node$GROUP_RANK"}),
    _ended(
        "environment_drift/pretrain",
        "2-3",
        "DATA_ROOT",
        options={"host_env": "1:DATA_ROOT=/scratch/shards"},
    ),
    _ended("environment_drift/finetune", "", "bpe", options={"host_path": "sites/node$GROUP_RANK"}),
    _ended("exception/plain", "2", "KeyError", at("exception/plain.py", 'row["label"]')),
    _ended("exception/pretrain", "1", "expanded size", at("exception/data/collate.py", "out[i,")),
    _ended("exception/stream", "3", "ZeroDivisionError", at("exception/stream.py", "40 / weight")),
    _ended(
        "exception/async_prefetch",
        "1",
        "UnicodeDecodeError",
        at("exception/async_prefetch.py", "path.read_text"),
    ),
    _ended("exception/resume_optimizer", "", "parameter group", launcher="torchrun"),
    _ended("shape_mismatch/plain", "", "all_gather", at("shape_mismatch/plain.py", "dist.all_gather")),
    _ended("shape_mismatch/resume", "", "all_reduce", at("shape_mismatch/resume.py", "dist.all_reduce")),
    _ended(
        "shape_mismatch/vocabulary",
        "",
        "all_reduce",
        at("shape_mismatch/vocabulary.py", "dist.all_reduce"),
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    ),
    _while("waiting_in_python/plain", r"step 39 ", "1", at("waiting_in_python/plain.py", "batches.get")),
    _while("waiting_in_python/pretrain", r"step +55 ", "0", "board.py", "trim"),
    _while("waiting_in_python/tracked", r"step=28 ", "2", "recv", "log"),
    _while("stuck_in_c/plain", r"step 24 ", "3", "sem_wait", at("stuck_in_c/plain.py", "libc.sem_wait")),
    _while("stuck_in_c/finetune", r"epoch 2,", "1", "fetch_index", "io_utils"),
    _while("stuck_in_c/cached", r"s19", "1", "flock", at("stuck_in_c/cached.py", "fcntl.LOCK_EX")),
    _while("gil_held/plain", r"step 19", "1", "wait_for_device", at("gil_held/plain.py", "device.pause")),
    _while("gil_held/pretrain", r"step 24", "2", "cleaning.py", "is_sentence"),
    _while("gil_held/sampling", r'"epoch": 1, "step": 19', "0", "sampling.py"),
)

_PLAYED = "constructed: there is no device; the words are those of torch"

_PROCESS = (
    _ended("worker_killed/plain", "1", "DataLoader worker", "killed"),
    _ended("worker_killed/video", "2", "DataLoader worker", "exited unexpectedly"),
    _ended("worker_killed/corpus", "0", "BrokenProcessPool", "pool"),
    _ended("device_memory/plain", "3", "GiB", at("device_memory/plain.py", "allocate(length"), note=_PLAYED),
    _ended("device_memory/finetune", "0-1", "GiB", "finetune.py", note=_PLAYED),
    _ended("device_memory/generate", "1", "out of memory", "generate.py", note=_PLAYED),
    _ended("shm_full/plain", "", "/dev/shm", "shared memory", options={"shm_mb": "3"}),
    _ended("shm_full/replay", "", "/dev/shm", "shared memory", options={"shm_mb": "4"}),
    _ended("shm_full/cache", "", "/dev/shm", "shared memory", options={"shm_mb": "8"}),
    _while("shm_full/video_clips", r"No space left", "", "shared memory", options={"shm_mb": "24"}),
    _ended("segfault/plain", "2", at("segfault/plain.py", "ctypes.string_at"), "checksum"),
    _ended("segfault/collect", "1", "copy_rows", "fastops"),
    _ended("segfault/config", "0", "config.py", "__getattr__"),
)

_NUMBERS = (
    _ended("loss_not_falling/plain", ""),
    _while("loss_not_falling/classify", r"200 steps", ""),
    _ended("loss_not_falling/language", "", note="it rises"),
    _ended("replicas_diverge/plain", "2"),
    _ended("replicas_diverge/no_sync_always", "0-3", "param_norm"),
    _while("replicas_diverge/local_sgd", r"180 steps", "3"),
    _while("replicas_diverge/ema", r"checkpoint of step 150", ""),
)

_MEETING = (
    _ended("port_in_use/plain", "0", "port"),
    _ended("port_in_use/exporter", "", "port", "Address already in use", hosts=1, procs_per_host=3),
    _ended(
        "port_in_use/metrics_server",
        "1",
        at("port_in_use/metrics_server.py", "server = Exporter("),
        hosts=1,
    ),
    _ended("port_in_use/second_store", "0", "port", "TCPStore"),
    _while("wrong_master/plain", r"starting", "", "head-node-0", env={"MASTER_ADDR": "head-node-0"}),
    _ended("wrong_master/cluster", "", "MASTER_ADDR", "port", "127.0.0.1"),
    _while("wrong_master/functional", r"waiting for the others", "", "MASTER_PORT", "port", "127.0.0.1"),
    _while("world_size_mismatch/plain", r"joining", "", "8"),
    _ended("world_size_mismatch/configured", "", "6"),
    _while("world_size_mismatch/per_node", r"of 6", "", "6"),
    _while(
        "missing_rank/plain",
        r"rendezvous",
        "",
        "3",
        env={"WORLD_SIZE": "4"},
        options={"only_ranks": "0-2"},
    ),
    _while("missing_rank/sharded", r"nothing to do", "2", "2"),
    _while(
        "missing_rank/spawner",
        r"worker 0",
        "",
        "3",
        launcher="per_host",
        env={"TRAIN_PORT": "29617", "MASTER_ADDR": "127.0.0.1"},
    ),
)

_REST = (
    _ended("disk_full/plain", "0", "disk", "space", options={"disk_mb": "6"}),
    _ended("disk_full/features", "", "disk", "space", options={"disk_mb": "2", "disk": "features"}),
    _ended("disk_full/background", "0", "disk", "space", options={"disk_mb": "5"}),
    _ended("timeout_order/plain", "0", "timeout", "time-out", "evaluate"),
    _ended("timeout_order/checkpointed", "3", "monitored_barrier", "upload"),
    _ended("timeout_order/tokenizer_cache", "0", "cache-ready", "build_cache"),
    _while("stopped/plain", r"step 30 ", "2", "SIGSTOP", "stopped"),
    _while("stopped/preemptible", r"rank 0 step 40$", "3", "SIGSTOP", "stopped"),
    _while("stopped/throttle", r'"r": 0, "s": 8,', "1", "SIGSTOP", "stopped"),
    _ended("left_children/plain", "0"),
    _while("left_children/evaluator", r"rank 1: all steps done", "1"),
    _ended("left_children/uploader", "3"),
)

_GOOD = (
    _while("slow/plain", r"step 1 ", ""),
    _while("slow/silent", r"epoch 0", ""),
    _while("slow/prepare", r"tokenized 10 ", ""),
    _while("slow/reporting", r"environment ready", ""),
    _while("slow/checkpointing", r"checkpoint of step 5", ""),
    _while("slow/first_step_compiles", r"building the kernels", ""),
    _ended("healthy/ddp", ""),
    _ended("healthy/retrying", ""),
    _ended("healthy/optional", ""),
    _ended("healthy/amp", ""),
    _ended("healthy/uneven", ""),
    _while("healthy/pretrain", r'"step": 60,', ""),
    _while("healthy/vision", r"saved step 50", ""),
    _ended("healthy/evaluated", ""),
    _while("healthy/pipeline", r"micro-batch 40:", ""),
    _while("healthy/adversarial", r"80 rounds", ""),
    _while("healthy/evaluates_alone", r"epoch 0: evaluating", ""),
    _while("healthy/report_after_the_others", r"writing the report", ""),
)

CASES: tuple[Case, ...] = (
    *_FIRST_SIX,
    *_PROGRAM,
    *_PROCESS,
    *_NUMBERS,
    *_MEETING,
    *_REST,
    *_GOOD,
)
