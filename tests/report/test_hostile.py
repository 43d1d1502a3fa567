"""Text stays text: hostile names, messages and paths, through everything that a run writes."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import TensorProto, helper

from runner.cli.terminal import LONGEST
from runner.schema.installed_choices import escape_interpolation
from runner.sweeps.table import Row, markdown
from tests.harness import Run, check_script, winnow
from tests.model.models import model_of
from tests.report.fresh import show
from tests.report.hostile import STRINGS, SURROGATE

NAMES = list(STRINGS.values())
FOLDER = "".join(STRINGS[key] for key in ("colors", "interpolation", "line feed", "quotes", "right to left override"))
CHECK = "".join(STRINGS[key] for key in ("C1 control sequence", "a link", "shell", "a mapping", "percent"))
FILE = "".join(STRINGS[key] for key in ("escaped interpolation", "C1 control sequence", "a link", "shell", "a mapping"))


def chain(path: Path) -> None:
    """A model whose nodes and tensors have these names; each node once as itself and once as what it makes."""
    made = [f"{name}\N{BULLET}" for name in NAMES]
    nodes = [
        helper.make_node("Abs", ["x" if number == 0 else made[number - 1]], [made[number]], name=name)
        for number, name in enumerate(NAMES)
    ]
    value = helper.make_tensor_value_info
    onnx.save(
        model_of(nodes, [value("x", TensorProto.FLOAT, [2])], [value(made[-1], TensorProto.FLOAT, [2])]), str(path)
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run in which all nodes are the answer, whose check prints all strings, and whose paths are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    place, odd = folder / FOLDER, folder / f"{FOLDER}{SURROGATE[:2]}"  # runtimes take no model from the second
    place.mkdir()
    odd.mkdir()
    chain(place / f"{FILE}.onnx")
    said = json.dumps([*NAMES, SURROGATE]).encode().hex()
    body = (
        "import json\n"
        f"for text in json.loads(bytes.fromhex({said!r})):\n"
        "    sys.stdout.buffer.write(text.encode('utf-8', 'surrogatepass') + b'\\n')\n"
        f"sys.exit(int(len(nodes) == {len(NAMES)}))"
    )
    check = check_script(folder, body)
    shutil.copy(check, odd / f"{CHECK}.py")
    argv = [sys.executable, "-I", "-S", str(odd / f"{CHECK}.py"), "{model}"]
    (folder / "run.yaml").write_text(
        yaml.safe_dump(
            {
                "model": escape_interpolation(str(place / f"{FILE}.onnx")),
                "defaults": [
                    "config",
                    {"override strategy": "reduce_bisect"},
                    {"override checker": "command"},
                    "_self_",
                ],
                "checker": {"command": [escape_interpolation(word) for word in argv], "flaky": "never"},
            },
            allow_unicode=False,
        )
    )
    return winnow("run.yaml", folder=folder / "run", cwd=folder)


def plain(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


def test_the_answer_is_whole(run: Run) -> None:
    assert run.code == 0, run.output
    assert run.result["culprits"] == NAMES
    assert not list(run.folder.parent.rglob("FORGED*"))


def test_terminal_and_log(run: Run) -> None:
    log = (run.folder / "winnow.log").read_bytes().decode("utf-8")
    for text in (run.output, log):
        assert plain(text)
        assert not re.search(r"^(#.*)?FORGED", text, re.MULTILINE)
        assert max(map(len, text.splitlines())) < 2 * LONGEST


def test_report(run: Run) -> None:
    text = (run.folder / "REPORT.md").read_bytes().decode("utf-8")
    assert plain(text)
    outside = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    folds = re.findall(r"^</?details>$|^<summary>[^<>&]*</summary>$", outside, re.MULTILINE)
    assert len(folds) == 3 * folds.count("<details>") == 3 * folds.count("</details>"), folds
    spans = re.sub(r"`[^`\n]+`", "", re.sub("|".join(map(re.escape, folds)), "", outside))
    assert not re.search(r"<[a-z!]|\]\(|://|^FORGED|\*\*|!\[", spans, re.MULTILINE)
    assert len(re.findall(r"^# ", outside, re.MULTILINE)) == 1
    for block in re.findall(r"(?:^\|.*\|\n)+", outside, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_repro(run: Run) -> None:
    text = (run.folder / "repro.py").read_text(encoding="utf-8")
    assert plain(text)
    held = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("NODES", "COMMAND")
    }
    assert held["NODES"][:20] == NAMES[:20]
    assert held["COMMAND"][3].endswith(f"{CHECK}.py")


@pytest.mark.slow
def test_a_replay_finds_the_same(run: Run) -> None:
    again = winnow(str(run.folder / "replay.yaml"), folder=run.folder.parent / "again", cwd=run.folder.parent)
    assert (again.code, again.result["culprits"]) == (0, NAMES), again.output


@pytest.mark.slow
def test_bundle(run: Run, tmp_path: Path) -> None:
    """Plain names below one folder, whatever the check is called and wherever it lies."""
    with zipfile.ZipFile(run.folder / "bundle.zip") as archive:
        for name in archive.namelist():
            assert re.fullmatch(r"bundle/([A-Za-z0-9_][\w.-]*/)*[A-Za-z0-9_][\w.-]*", name, re.ASCII), name
        assert any(name.startswith("bundle/check/") for name in archive.namelist())
        archive.extractall(tmp_path)
    shown = show(sys.executable, tmp_path / "bundle" / "repro.py")
    assert shown.code == 1, shown.text
    assert plain(shown.text) and not list(tmp_path.rglob("FORGED*"))


def test_replay_and_names_of_files(run: Run) -> None:
    text = (run.folder / "replay.yaml").read_text(encoding="utf-8")
    assert plain(text)
    held = yaml.safe_load(text)
    assert held["model"].endswith(escape_interpolation(f"/{FILE}.onnx"))
    for path in run.folder.rglob("*"):
        assert re.fullmatch(r"[\w.=-]+", path.name, re.ASCII), path
    assert not [*run.folder.glob("checks/*/*.onnx")], "what a check was given is not kept"


def test_a_sweep() -> None:
    for text in (*NAMES, SURROGATE):
        row = Row("0", (f"model={text}",), "found", 0, 3, 1, (text, text), 5, 1.0, "", "0")
        bad = Row("1", (f"model={text}",), "usage", 2, message=f"no such file: {text}")
        shown = markdown([row, bad])
        lines = shown.splitlines()
        assert len({len(re.findall(r"\|", line)) for line in lines if line.startswith("|")}) == 1, text
        spans = re.sub(r"`[^`\n]+`", "", shown)
        assert plain(shown), text
        assert not re.search(r"<[a-z!]|\]\(|://|^FORGED|\*\*|!\[", spans, re.MULTILINE), text
