"""The program of the process that translates: the interpreter of a workspace runs its text, so it imports
nothing of ours. Its argument is a folder with copies alone; it prints one line of JSON.

hipify stops at the first file that it cannot take, so those are told and left out, one after the other.
"""

import contextlib
import importlib
import json
import os
import sys


def main(root: str) -> None:
    with contextlib.redirect_stdout(sys.stderr):
        try:
            torch = importlib.import_module("torch")
            hipify_python = importlib.import_module("torch.utils.hipify.hipify_python")
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}", "missing": isinstance(error, ImportError)}
            os.write(1, json.dumps(told).encode())
            return
        failed: dict[str, str] = {}
        while True:
            hipify_python.HIPIFY_FINAL_RESULT.clear()
            try:
                # As torch.utils.cpp_extension translates an extension when it is built for ROCm.
                found = hipify_python.hipify(
                    project_directory=root,
                    output_directory=root,
                    extensions=tuple(json.loads(sys.argv[2])),
                    header_extensions=(".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc"),
                    includes=[os.path.join(root, "*")],
                    show_progress=False,
                    hip_clang_launch=True,
                    is_pytorch_extension=True,
                )
                break
            except Exception as error:
                stuck = [
                    path
                    for path, one in hipify_python.HIPIFY_FINAL_RESULT.items()
                    if one.current_state != hipify_python.CurrentState.DONE
                ]
                if not stuck:
                    raise
                failed[os.path.relpath(stuck[-1], root)] = f"{type(error).__name__}: {error}"
                os.unlink(stuck[-1])
    pairs = {
        os.path.relpath(path, root): os.path.relpath(one.hipified_path, root)
        for path, one in found.items()
        if one.hipified_path
    }
    told = {"torch": torch.__version__, "pairs": pairs, "failed": failed}
    os.write(1, json.dumps(told).encode())


if __name__ == "__main__":
    main(sys.argv[1])
