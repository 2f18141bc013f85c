from __future__ import annotations

import pytest

from milkweed.runtime.agent.starter.imports import imports_stdlib_alone


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "import os, sys as system\nfrom os.path import join",
        "import time; import json as j; print(time.time())",
        "if True: import math\nfrom collections.abc import (\n    Mapping,\n)",
        "x = 'to import torch'",
    ],
)
def test_a_program_of_the_standard_library_is_known(text: str) -> None:
    assert imports_stdlib_alone(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "import torch",
        "import os, torch",
        "import os; import torch.nn as nn",
        "def f():\n    from torch import nn",
        "if x: import torch",
        "try: from numpy import array\nexcept ImportError: pass",
        "from . import mine",
        "from .mine import x",
        "from mine import *",
        "import importlib\nimportlib.import_module('torch')",
        "__import__('torch')",
        "exec(open('other.py').read())",
        "import \\\n  torch",
    ],
)
def test_in_doubt_a_program_may_import_anything(text: str) -> None:
    assert not imports_stdlib_alone(text)
