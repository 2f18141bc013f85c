"""Which command lines start warm, and what keys them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from milkweed.runtime.agent.starter.command_line import Cold, PythonCommand, parse_command
from milkweed.runtime.agent.starter.early import early_variables, is_early, sets_early
from milkweed.runtime.agent.starter.interpreters import find_interpreter
from milkweed.runtime.agent.starter.key import read_request


@pytest.mark.parametrize(
    ("line", "flags", "script", "code"),
    [
        ("python a.py -x", (), "a.py", None),
        ("python -u a.py", ("-u",), "a.py", None),
        ("python -OOB -X dev -Wignore a.py", ("-O", "-O", "-B", "-X", "dev", "-W", "ignore"), "a.py", None),
        ("python -Xdev -W error a.py", ("-X", "dev", "-W", "error"), "a.py", None),
        ("python -m pkg -u", (), None, None),
        ("python -um pkg", ("-u",), None, None),
        ("python -mpkg", (), None, None),
        ("python -c code a.py", (), None, "code"),
        ("python -ccode", (), None, "code"),
    ],
)
def test_a_command_line_is_read_as_python_reads_it(
    line: str, flags: tuple[str, ...], script: str | None, code: str | None
) -> None:
    assert parse_command(line.split()) == PythonCommand("python", flags, script, code)


@pytest.mark.parametrize(
    "line",
    [
        *("python", "python -", "python -i a.py", "python -I a.py", "python -E a.py", "python -S a.py"),
        *(
            "python -v a.py",
            "python --help",
            "python -X importtime a.py",
            "python -V",
            "python -c",
            "python -X",
        ),
    ],
)
def test_other_command_lines_start_cold(line: str) -> None:
    with pytest.raises(Cold):
        parse_command(line.split())


@pytest.mark.parametrize("name", ["/bin/sh", "env", "torchrun", "nowhere-at-all", "./python"])
def test_what_is_no_python_starts_cold(tmp_path: Path, name: str) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexec python3\n")
    (tmp_path / "python").chmod(0o700)
    with pytest.raises(Cold):
        find_interpreter(name, dict(os.environ), str(tmp_path))


EARLY = [
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME"),
    *("PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONPATH", "TORCH_LOGS", "TORCH_SHOW_CPP_STACKTRACES"),
    *("GOTO_NUM_THREADS", "DNNL_VERBOSE", "ONEDNN_VERBOSE", "MKLDNN_VERBOSE", "NPY_DISABLE_CPU_FEATURES"),
    *("NUMPY_MADVISE_HUGEPAGE", "KINETO_USE_DAEMON", "GFORTRAN_UNBUFFERED_ALL", "PYTORCH_JIT", "LANG"),
    *("TORCHDYNAMO_VERBOSE", "TORCHINDUCTOR_CACHE_DIR", "I_MPI_PIN", "OMPI_COMM_WORLD_LOCAL_SIZE", "HOME"),
    *("ACC_DEVICE_TYPE", "OPENSSL_CONF", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LC_ALL", "LD_PRELOAD"),
    *("LD_LIBRARY_PATH", "CUDA_MODULE_LOADING"),
]
LATE = [
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    *("CUDA_VISIBLE_DEVICES", "TMPDIR", "TZ", "PATH"),
]


@pytest.mark.parametrize("name", EARLY)
def test_a_variable_that_is_read_at_import_changes_the_key(name: str, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    argv = (sys.executable, "a.py")
    keys = {read_request(argv, {**env, **more}, str(tmp_path)).key for more in ({}, {name: "1"}, {name: "2"})}
    assert len(keys) == 3


def test_variables_of_a_rank_change_nothing(tmp_path: Path) -> None:
    assert early_variables(dict.fromkeys([*LATE, "MILKWEED_RANK", "MY_SETTING"], "1")) == ()


def test_flags_directory_and_interpreter_change_the_key(tmp_path: Path) -> None:
    lines = [
        (sys.executable, "a.py"),
        (sys.executable, "-O", "a.py"),
        (os.path.realpath(sys.executable), "a.py"),
    ]
    keys = {read_request(line, {}, cwd).key for line in lines for cwd in ("/", str(tmp_path))}
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import os\nos.environ['OMP_NUM_THREADS'] = '4'\nimport torch", "OMP_NUM_THREADS"),
        ('environ["TORCH_LOGS"]="+dynamo"', "TORCH_LOGS"),
        ("os.environ.setdefault('MKL_NUM_THREADS', '1')", "MKL_NUM_THREADS"),
        ("os.putenv('KMP_BLOCKTIME', '1')", "KMP_BLOCKTIME"),
        ("os.environ.update(\n    {'OMP_NUM_THREADS': '1'})", "OMP_NUM_THREADS"),
        ("os.environ |= dict(OMP_NUM_THREADS='1')", "OMP_NUM_THREADS"),
        ("x = os.environ['OMP_NUM_THREADS']", ""),
        ("if os.environ['OMP_NUM_THREADS'] == '1': pass", ""),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", ""),
        ("os.environ['MY_SETTING'] = '0'", ""),
    ],
)
def test_a_program_that_sets_such_a_variable_itself_is_known(text: str, name: str) -> None:
    assert sets_early(text) == name


# The interpreter's own path, of a user and a terminal: none of them changes what an import gives.
HARMLESS = {"PATH", "__PYVENV_LAUNCHER__"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.timeout(300)
def test_every_variable_that_is_read_at_import_is_among_the_early_ones(tmp_path: Path) -> None:
    source = tmp_path / "names.c"
    source.write_text(r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #define SEEN(name) char *name(const char *n) { \
            static char *(*next)(const char *); \
            if (!next) next = (char *(*)(const char *))dlsym(RTLD_NEXT, #name); \
            FILE *f = fopen(NAMES, "a"); if (f) { fprintf(f, "%s\n", n); fclose(f); } return next(n); }
        SEEN(getenv)
        SEEN(secure_getenv)
    """)
    library = tmp_path / "names.so"
    names = tmp_path / "names"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", f'-DNAMES="{names}"', "-o", library, source, "-ldl"], check=True
    )
    code = """if True:
        import os
        class Names(dict):
            def __getitem__(self, name):
                print(name.decode())
                return dict.__getitem__(self, name)
        os.environ._data = Names(os.environ._data)
        import torch, numpy"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    seen = {*done.stdout.split(), *names.read_text().split()}
    assert len(seen) > 50
    assert sorted(name for name in seen - HARMLESS if not is_early(name)) == []
