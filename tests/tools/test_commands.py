"""Commands as agents write them: split as a shell would, refused where only a shell could."""

import shlex
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.holdings import kept_by
from milkweed.tools.commands import check_env, check_keep, check_launcher, check_script, split_command


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python train.py --lr 0.1", ("python", "train.py", "--lr", "0.1")),
        ("  python   train.py  ", ("python", "train.py")),
        ("python -c 'print(1) ; print(2)'", ("python", "-c", "print(1) ; print(2)")),
        ('python -c "print(1) ; x = 2 > 1"', ("python", "-c", "print(1) ; x = 2 > 1")),
        ("python train.py \\\n  --lr 1", ("python", "train.py", "--lr", "1")),
        (
            "python train.py model.layers=[1,2] '*.py' a=b",
            ("python", "train.py", "model.layers=[1,2]", "*.py", "a=b"),
        ),
        ("echo a\\ b \\| \\$HOME", ("echo", "a b", "|", "$HOME")),
        ("echo '$HOME' it~s 5$", ("echo", "$HOME", "it~s", "5$")),
        (["ls", "*", "|", "$X", ""], ("ls", "*", "|", "$X", "")),
    ],
)
def test_a_command_becomes_words(command: str | list[str], words: tuple[str, ...]) -> None:
    assert split_command(command) == words


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("ls | wc", "a pipe"),
        ("cd x && ls", "&&"),
        ("sleep 1 &", "&"),
        ("a; b", "several commands"),
        ("a\nb", "several lines (line break)"),
        ("ls > out", "a redirection (>)"),
        ("cat < in", "a redirection (<)"),
        ("echo $(date)", "a command substitution"),
        ('echo "$(date)"', "a command substitution"),
        ('echo "`date`"', "a command substitution"),
        ("echo $RANK", "a variable"),
        ('echo "${RANK}"', "a variable"),
        ("ls *.py", "a glob"),
        ("ls ~/data", "a home directory"),
        ("A=1 python x.py", "the assignment A="),
        ("echo 'open", "cannot split"),
        ("", "empty"),
        ("   ", "empty"),
        ("''", "empty"),
        ([], "empty"),
        ([""], "empty"),
        (["a\0b"], "NUL"),
    ],
)
def test_what_only_a_shell_can_do_is_refused(command: str | list[str], what: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        split_command(command)
    assert what in str(caught.value)


def test_the_refusal_names_the_way_out() -> None:
    with pytest.raises(InvalidArgument, match="Pass it as script instead of command"):
        split_command("ls | wc")


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    command = " ".join(shlex.quote(word) for word in ["run", *words])
    if "\\\n" not in command:
        assert split_command(command) == ("run", *words)


@given(st.text())
def test_any_text_is_split_or_refused(text: str) -> None:
    with suppress(InvalidArgument):
        assert split_command(text)


@pytest.mark.parametrize("script", ["", " \n ", "a\0b"])
def test_a_script_needs_text(script: str) -> None:
    with pytest.raises(InvalidArgument):
        check_script(script)


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"MILKWEED_RUN": "x"}])
def test_impossible_variables_are_refused(env: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="env: "):
        check_env(env)


def test_variables_pass() -> None:
    assert check_env({"A": "", "b_2": "x=y"}) == {"A": "", "b_2": "x=y"}


@pytest.mark.parametrize(
    "argv",
    [
        ("torchrun", "train.py"),
        ("/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"),
        ("python", "-m", "torch.distributed.run", "train.py"),
        ("python", "-m", "torch.distributed.launch", "train.py"),
    ],
)
def test_torchrun_inside_of_ranks_is_refused(argv: tuple[str, ...]) -> None:
    for launcher in ("spmd", "torchrun"):
        with pytest.raises(InvalidArgument, match="would start torchrun in each"):
            check_launcher(argv, launcher)
    check_launcher(argv, "per_host")
    check_launcher(("python", "train.py"), "torchrun")


@pytest.mark.parametrize("directory", ["/home/[a]", "/home/*", "/home/what?", "/home/[!x]y"])
def test_a_relative_glob_of_files_to_keep_begins_at_the_directory_of_that_very_name(directory: str) -> None:
    (glob,) = check_keep(["out/*.pt"], directory)
    assert kept_by([glob], f"{directory}/out/a.pt")
    assert not kept_by([glob], "/home/a/out/a.pt")
