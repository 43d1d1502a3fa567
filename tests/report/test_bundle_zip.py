"""bundle.zip: one file to attach, which shows the failure where it is unpacked; nothing else of the user's is in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.report.bundle import BUNDLE_NAME, contents, write_zip
from runner.report.bundled_check_files import handed_on, left_behind, like_secrets, moved, texts_of
from runner.schema.checker import CommandChecker, PythonChecker, RunsChecker
from tests.harness import check_script, winnow
from tests.model.models import model_of
from tests.report.fresh import show

PASSES, SHOWS = 0, 1
COMMAND = "exit_code = 3 if 'bad' in nodes else 0\nprint(open(sys.argv[2]).read())\nsys.exit(exit_code)"
FUNCTION = """
import onnx

def check(model, inputs, expected):
    open("x.npz")
    return not any(node.op_type == "Log" for node in onnx.load(model).graph.node)
"""


def model(path: Path, middle: str, shape: list[int], kind: int = TensorProto.FLOAT, factor: float = 1.0) -> None:
    """Write a model with one node that is `bad`. ``factor``: of a weight."""
    inputs = ["a", *{"Gather": ["i"], "MatMul": ["w"], "Mul": ["a"]}.get(middle, [])]
    nodes = [
        helper.make_node("Abs", ["x"], ["x1"], name="first"),
        helper.make_node("Neg", ["x1"], ["a"], name="second"),
        helper.make_node(middle, inputs, ["b"], name="bad"),
        helper.make_node("Neg", ["b"], ["y"], name="last"),
    ]
    declared = [helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    weight = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8) * np.float32(factor)
    weights = [numpy_helper.from_array(np.array([7]), "i"), numpy_helper.from_array(weight, "w")]
    onnx.save(model_of(nodes, declared[:1], declared[1:], weights), path)


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's folder with models, checks, and what is nobody's business."""
    folder = tmp_path / "home" / "somebody"
    (folder / "tools").mkdir(parents=True)
    for name, middle, shape in (("log", "Log", [2]), ("erf", "Erf", [1, 99]), ("gather", "Gather", [2])):
        model(folder / f"{name}.onnx", middle, shape)
    model(folder / "half.onnx", "Mul", [2], TensorProto.FLOAT16)
    for name, factor in (("converted", 1.0005), ("original", 1.0)):
        model(folder / f"{name}.onnx", "MatMul", [1, 8], factor=factor)
    check_script(folder / "tools", COMMAND, "my check.py")
    (folder / "golden.txt").write_text("golden")
    np.savez(folder / "x.npz", x=np.array([0.5, 2], np.float32))
    np.savez(folder / "large.npz", x=np.array([300, 400], np.float16))
    (folder / "tools" / "my check.sh").write_text('#!/bin/sh\ngrep -q bad "$1" && test -f x.npz && exit 3\nexit 0\n')
    (folder / "tools" / "my check.sh").chmod(0o755)
    (folder / "mine.py").write_text(FUNCTION)
    return folder


BY_COMMAND = "checker.command=" + json.dumps([sys.executable, "tools/my check.py", "{model}", "golden.txt"])
GIVEN = ("inputs=files", "inputs.path=x.npz")
"""Files that the run is given, and that nothing of the check names but the text of its script."""
BARE_COMPARISON = ("checker=compare", "checker.rtol=0", "checker.atol=0", "reference=onnx_reference")
KINDS = {
    "command": ("log", "checker=command", BY_COMMAND),
    "script": ("log", *GIVEN, "checker=command", 'checker.command=["tools/my check.sh", "{model}"]'),
    "python": ("log", *GIVEN, "checker=python", "checker.file=mine.py"),
    "auto": ("log",),
    "finite": ("log", "checker=finite"),
    "compare": ("erf", *BARE_COMPARISON),
    "runs": ("gather", "checker=runs", "target.optimization=none"),
    "rounding": ("half", "inputs=files", "inputs.path=large.npz", "checker=finite", "target.rounding=on"),
    "measured": ("converted", "reference.model=original.onnx", "checker=compare", "checker.tolerance=auto"),
}
FAST = ("script", "auto", "rounding")


@pytest.mark.parametrize(
    "kind", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in KINDS], ids=[*KINDS]
)
def test_it_shows_the_failure_where_it_is_unpacked(kind: str, user: Path, tmp_path: Path) -> None:
    """Neither the user's folder nor that of the run is there any more."""
    name, *options = KINDS[kind]
    folder = user / "run"
    run = winnow(f"model={name}.onnx", *options, "checker.flaky=never", folder=folder, cwd=user)
    assert (run.code, run.result["culprits"]) == (0, ["bad"]), run.output
    with zipfile.ZipFile(folder / BUNDLE_NAME) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "elsewhere")
    for entry in names:
        assert re.fullmatch(r"bundle/([\w-][\w.-]*/)*[\w-][\w.-]*", entry), entry
    unpacked = tmp_path / "elsewhere" / "bundle"
    assert {"README.txt", "REPORT.md", "reduced.onnx", "repro.py", "test_data_set_0"} <= {
        path.name for path in unpacked.iterdir()
    }
    for path in unpacked.rglob("*"):
        if path.is_file() and path.name != "REPORT.md":  # which says what was typed
            assert str(tmp_path).encode() not in path.read_bytes(), path
    assert ("rounded.onnx" in (unpacked / "REPORT.md").read_text()) == (kind == "rounding")
    assert ("LIMIT" in (unpacked / "repro.py").read_text()) == (kind == "measured")
    shutil.rmtree(tmp_path / "home")
    shown = show(sys.executable, unpacked / "repro.py")
    assert shown.code == SHOWS, shown.text
    if kind in ("command", "script", "python"):
        (script,) = (path for path in (unpacked / "check").rglob("m*.*") if path.suffix != ".pyc")
        script.write_text("exit 0\n" if kind == "script" else "def check(*_):\n    return True\n")
        (unpacked / "check" / "golden.txt").unlink(missing_ok=True)
        assert show(sys.executable, unpacked / "repro.py").code != SHOWS, "it is the copy that runs"


def test_equal_contents_give_equal_bytes(user: Path, tmp_path: Path) -> None:
    shutil.copy(user / "log.onnx", tmp_path / "reduced.onnx")
    made = []
    for moment in (1e9, 2e9):
        os.utime(tmp_path / "reduced.onnx", (moment, moment))
        write_zip(tmp_path, contents(tmp_path, ["reduced.onnx"], RunsChecker(), user), {"repro.py": "pass\n"})
        made.append((tmp_path / BUNDLE_NAME).read_bytes())
    assert made[0] == made[1]
    assert not list(tmp_path.glob(".*"))


def test_what_is_too_large_is_left_out_and_named(tmp_path: Path) -> None:
    sizes = {"reduced.onnx": 200_000, "reduced.onnx.data": 1_500_000, "rounded.onnx": 700_000}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    held = contents(tmp_path, ["reduced.onnx", "rounded.onnx"], RunsChecker(), tmp_path, most=1)
    assert (list(held.files), list(held.left_out)) == (["reduced.onnx", "rounded.onnx"], ["reduced.onnx.data"])
    assert "reduced.onnx.data (1.5 MB)" in held.told
    write_zip(tmp_path, held, {})
    with zipfile.ZipFile(tmp_path / BUNDLE_NAME) as archive:
        assert "reduced.onnx.data (1.5 MB)" in archive.read("bundle/README.txt").decode()


def test_links_and_names_from_elsewhere_are_not_followed(tmp_path: Path) -> None:
    run, secret = tmp_path / "run", tmp_path / "secret"
    (run / "test_data_set_0").mkdir(parents=True)
    secret.write_text("secret")
    (run / "reduced.onnx").symlink_to(secret)
    (run / "test_data_set_0" / "input_0.pb").symlink_to(secret)
    assert not contents(run, ["reduced.onnx", "../secret", ""], RunsChecker(), tmp_path).files


OTHERS: Mapping[str, bool] = {
    "check.py": True,
    "data/golden.npz": True,
    "../lib/helper.sh": True,
    "net.onnx": False,
    "weights.safetensors": False,
    "../token": False,
    "/etc/hostname": False,
    "/bin/sh": False,
    "compiled": False,
}


def test_of_what_a_command_names_programs_and_data_beside_go_along(tmp_path: Path) -> None:
    cwd = tmp_path / "user"
    for name in OTHERS:
        if not name.startswith("/"):
            (cwd / name).parent.mkdir(parents=True, exist_ok=True)
            (cwd / name).write_bytes(b"\x7fELF" if name == "compiled" else b"x")
    checker = CommandChecker(command=[sys.executable, *OTHERS, "{model}"])
    found = handed_on(checker, cwd)
    wanted = {(cwd / name): name for name, taken in OTHERS.items() if taken}
    assert {os.path.normpath(path) for path in found} == {os.path.normpath(path) for path in wanted}
    assert sorted(found.values()) == ["check.py", "data/golden.npz", "helper.sh"]
    assert set(texts_of(checker, cwd)) == {"check.py", "helper.sh"}
    assert left_behind(checker, cwd) == ["net.onnx", "weights.safetensors", "../token", "compiled"]
    write_zip(tmp_path, contents(tmp_path, [], checker, cwd), {})
    with zipfile.ZipFile(tmp_path / BUNDLE_NAME) as archive:
        told = archive.read("bundle/README.txt").decode()
    assert (
        "files that the check names and that were not handed on: net.onnx, weights.safetensors, ../token, compiled."
        in told
    )


@pytest.mark.parametrize(
    "name",
    [".ssh/config", ".env", "prod.env", "a.PEM", "tls.key", "id_rsa", "hf_token", "secrets/a.txt", "my.token.py"],
)
def test_keys_and_what_is_hidden_stay_with_the_user(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    (tmp_path / "plain.txt").symlink_to(name)
    checker = CommandChecker(command=["grep", name, "plain.txt", "{model}"])
    assert not handed_on(checker, tmp_path)
    assert left_behind(checker, tmp_path) == [name, "plain.txt"]


def test_a_link_is_what_it_leads_to_and_a_hidden_folder_of_the_users_own_is_none(tmp_path: Path) -> None:
    cwd = tmp_path / ".work" / "mine"
    cwd.mkdir(parents=True)
    (tmp_path / "passages.txt").touch()
    (cwd / "golden.txt").symlink_to(tmp_path / "passages.txt")
    (cwd / "token_embedding").mkdir()
    names = ["token_embedding/check.py", "../check.sh", "tokenizer.json"]
    for name in names:
        (cwd / name).touch()
    checker = CommandChecker(command=["python", *names, "golden.txt", "{model}"])
    assert [*handed_on(checker, cwd).values()] == ["token_embedding/check.py", "check.sh", "tokenizer.json"]


def test_python_files_that_a_check_imports_go_along(tmp_path: Path) -> None:
    texts = {
        "tools/check.py": "import json, helper, package.inner as p\nfrom package import outer\nimport secret_keys",
        "tools/helper.py": "def f():\n    import numpy, lazily",
        "tools/lazily.py": "import helper",
        "tools/secret_keys.py": "",
        "tools/package/__init__.py": "",
        "tools/package/inner.py": "from . import beside\nfrom ..helper import f\nfrom .....x import y",
        "tools/package/outer.py": "this is no Python",
        "tools/package/beside.py": "",
        "tools/package/unused.py": "",
        "gone.py": "",
    }
    for name, source in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    wanted = {*texts} - {"tools/secret_keys.py", "tools/package/unused.py", "gone.py"}
    by_command = CommandChecker(command=["python", "tools/check.py", "{model}"])
    for checker in (by_command, PythonChecker(file="tools/check.py")):
        assert set(handed_on(checker, tmp_path).values()) == wanted
        assert set(texts_of(checker, tmp_path)) == {"tools/check.py"}
    held = contents(tmp_path, [], by_command, tmp_path)
    assert "tools/lazily.py" in held.readme(["repro.py"]) and "are not included" in held.readme(["repro.py"])


def test_options_that_sound_like_a_secret_are_seen() -> None:
    words = ["sh", "--api-key=x", "--tokens", "7", "--tokenizer=a", "HF_TOKEN=x", "secret.txt", "{model}"]
    assert like_secrets(CommandChecker(command=words)) == ["--api-key", "--tokens", "HF_TOKEN"]


@pytest.mark.slow
def test_what_the_environment_of_a_check_held_is_in_no_file(user: Path, tmp_path: Path) -> None:
    body = "import os\nsys.exit('bad' in nodes and os.environ['MY_KEY'] == 'hunter2')"
    words = json.dumps([sys.executable, str(check_script(user, body)), "{model}"])
    given = ("checker=command", f"checker.command={words}", "checker.env.MY_KEY=hunter2", "checker.flaky=never")
    run = winnow("model=log.onnx", *given, folder=user / "run", cwd=user)
    assert (run.code, run.result["culprits"]) == (0, ["bad"]), run.output
    with zipfile.ZipFile(user / "run" / BUNDLE_NAME) as archive:
        archive.extractall(tmp_path)
    held = [path for path in (tmp_path / "bundle").rglob("*") if path.is_file()]
    texts = {path.name: path.read_text(errors="replace").replace(body, "") for path in held}
    assert not [name for name, text in texts.items() if "hunter2" in text]
    assert "checker.env.MY_KEY=..." in texts["REPORT.md"] and "MY_KEY" in texts["repro.py"]
    for script in (user / "run" / "repro.py", tmp_path / "bundle" / "repro.py"):
        told = {value: show(sys.executable, script, {"MY_KEY": value}).code for value in ("hunter2", "another")}
        assert told == {"hunter2": SHOWS, "another": PASSES}
        unset = show(sys.executable, script)
        assert unset.code == 2 and "MY_KEY" in unset.text, unset.text


def test_a_command_is_run_on_the_copies(tmp_path: Path) -> None:
    (tmp_path / "a b.py").touch()
    other = tmp_path / "elsewhere" / "a.py"
    other.parent.mkdir()
    other.touch()
    line = f"python {other} $0 && echo --x={other}.txt"
    words = [sys.executable, "a b.py", f"--with={other}", line, "{model}"]
    checker = CommandChecker(command=words)
    found = handed_on(checker, tmp_path)
    given = moved({"command": words, "files": {}, "cwd": str(tmp_path)}, checker, tmp_path, found)
    assert given["command"] == [
        *("{python}", "a_b.py", "--with=elsewhere/a.py"),
        f"python elsewhere/a.py $0 && echo --x={other}.txt",
        "{model}",
    ]
    assert given["cwd"] == "check"


@pytest.mark.parametrize(
    ("head", "started"),
    [
        ("#!/bin/sh -e\n", ["sh", "-e", "a.sh"]),
        ("#!/usr/bin/env python3\n", ["{python}", "a.sh"]),
        ("#!/usr/bin/env bash\n", ["bash", "a.sh"]),
        ("echo\n", ["./a.sh"]),
        ("#!\n", ["./a.sh"]),
    ],
)
def test_a_script_is_given_to_what_its_first_line_names(head: str, started: list[str], tmp_path: Path) -> None:
    """An archive may lose that it can be run, and no folder of it is on the path."""
    (tmp_path / "a.sh").write_text(head)
    words = ["./a.sh", "{model}"]
    checker = CommandChecker(command=words)
    given = moved({"command": words, "files": {}}, checker, tmp_path, handed_on(checker, tmp_path))
    assert given["command"] == [*started, "{model}"]


def test_what_a_run_is_given_and_a_script_names_goes_along_where_the_script_finds_it(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("np.load('x.npz'), load('net.onnx'), 'my data.npz', 'xx.npz'")
    given = [tmp_path / name for name in ("x.npz", "net.onnx", "my data.npz", "other.npz")]
    for path in given:
        path.touch()
    checker = CommandChecker(command=["python", "check.py", "{model}"])
    assert [*handed_on(checker, tmp_path, given).values()] == ["check.py", "x.npz"]
    assert left_behind(checker, tmp_path, given) == ["net.onnx", "my data.npz"]
    assert left_behind(checker, tmp_path) == ["x.npz", "net.onnx"]  # that it opens them is all that is known


def test_a_function_that_lies_elsewhere_has_a_plain_name(tmp_path: Path) -> None:
    path = tmp_path / "evil`$(x).py"
    path.write_text(FUNCTION)
    assert handed_on(PythonChecker(file=str(path)), tmp_path / "user") == {path: "evil_x_.py"}
