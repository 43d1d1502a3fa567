from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, TypeProto, helper, numpy_helper

from runner.exit_codes import NotApplicable, UsageError
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.samples import samples
from runner.schema.inputs import FilesInputs, InputsSettings, PythonInputs, RandomInputs
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with Guardian() as guardian, Pool(tmp_path_factory.mktemp("pool"), guardian) as pool:
        yield pool


def graph(**inputs: tuple[int, list | None]) -> Graph:
    made = helper.make_graph(
        [helper.make_node("Identity", [next(iter(inputs), "none")], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return Graph.of(helper.make_model(made))


def arrays(settings: InputsSettings, one: Graph, pool: Pool, folder: Path) -> list[dict[str, np.ndarray]]:
    return [
        {name: recorded.read(file) for name, file in sample.items()} for sample in samples(settings, one, pool, folder)
    ]


class TestRandom:
    def test_the_same_for_the_same_name_and_seed(self, pool: Pool, tmp_path: Path) -> None:
        one = graph(a=(F, [3, 4]), b=(F, [3, 4]))
        first = arrays(RandomInputs(samples=2), one, pool, tmp_path / "1")
        again = arrays(RandomInputs(samples=2), one, pool, tmp_path / "2")
        other = arrays(RandomInputs(seed=2), one, pool, tmp_path / "3")
        assert np.array_equal(first[0]["a"], again[0]["a"]) and np.array_equal(first[1]["b"], again[1]["b"])
        assert not np.array_equal(first[0]["a"], first[1]["a"])
        assert not np.array_equal(first[0]["a"], first[0]["b"])
        assert not np.array_equal(first[0]["a"], other[0]["a"])
        # another input beside it changes nothing
        alone = arrays(RandomInputs(), graph(b=(F, [3, 4])), pool, tmp_path / "4")
        assert np.array_equal(alone[0]["b"], first[0]["b"])

    @pytest.mark.parametrize("dtype", [d for d in TensorProto.DataType.values() if 1 <= d <= 20])
    def test_every_type(self, pool: Pool, tmp_path: Path, dtype: int) -> None:
        (sample,) = samples(RandomInputs(), graph(x=(dtype, [2, 50])), pool, tmp_path)
        assert (sample["x"].dtype, sample["x"].shape, sample["x"].finite) == (dtype, (2, 50), True)
        array = recorded.read(sample["x"])
        assert len(set(array.flat)) > 1
        if array.dtype.kind in "iu":
            assert set(array.flat) == {0, 1}
        if array.dtype.kind == "f":
            assert -1 <= array.min() < -0.5 and 0.5 < array.max() <= 1

    def test_ranges(self, pool: Pool, tmp_path: Path) -> None:
        one = graph(x=(F, [100]), i=(INT, [100]), h=(TensorProto.FLOAT16, [100]))
        settings = RandomInputs(ranges={"i": [5, 8], "": [10, 20]})
        (sample,) = arrays(settings, one, pool, tmp_path)
        assert set(sample["i"]) == {5, 6, 7}
        assert sample["x"].min() >= 10 and sample["x"].max() < 20 and sample["h"].min() >= 10
        for bad in ([1], [2, 1], [0, float("inf")], [1, 1], ["a", 1], [float("nan"), 1], [0, 1, 2]):
            with pytest.raises(UsageError, match=r"inputs\.ranges"):
                samples(RandomInputs(ranges={"x": bad}), one, pool, tmp_path)
        with pytest.raises(UsageError, match=r"no input 'z'.*x \(float \[100\]\)"):
            samples(RandomInputs(ranges={"z": [0, 1]}), one, pool, tmp_path)

    @pytest.mark.parametrize(
        ("dtype", "span", "message"),
        [
            (TensorProto.UINT8, [0, 300], r"uint8, which holds 0 to 255; choose \[low, high\) within \[0, 256\)"),
            (TensorProto.UINT8, [-1, 10], "uint8, which holds 0 to 255"),
            (INT, [0, 10**400], "int64, which holds"),
            (TensorProto.UINT64, [0, 2**64 + 1], "uint64, which holds 0 to 18446744073709551615"),
            (TensorProto.INT4, [0, 100], "int4, which holds -8 to 7"),
            (INT, [0.2, 0.8], r"int64, which holds whole numbers, and there is none in \[0.2, 0.8\)"),
            (TensorProto.FLOAT16, [0, 70000], "float16, which holds -65504 to 65504"),
            (TensorProto.BFLOAT16, [0, 1e39], "bfloat16, which holds"),
            (F, [0, 10**400], "float, which holds"),
            (TensorProto.COMPLEX64, [0, 1e39], "complex64, which holds"),
            (B, [-1, 1], "bool, which holds 0 to 1"),
            (TensorProto.STRING, [0, 1], "string, which has no range"),
        ],
    )
    def test_a_range_that_the_type_cannot_hold(
        self, pool: Pool, tmp_path: Path, dtype: int, span: list, message: str
    ) -> None:
        with pytest.raises(UsageError, match=rf"inputs\.ranges\.x=.*input 'x' is {message}"):
            samples(RandomInputs(ranges={"x": span}), graph(x=(dtype, [4])), pool, tmp_path)
        if dtype not in (B, TensorProto.STRING):
            with pytest.raises(UsageError, match=r'inputs\.ranges\.""=.*a range of its own.*inputs\.ranges\.x='):
                samples(RandomInputs(ranges={"": span}), graph(x=(dtype, [4])), pool, tmp_path)
            sequence = Graph.of(graph(x=(dtype, [4])).model)
            kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(dtype, [4]))
            sequence.model.graph.input[0].type.CopyFrom(kind)
            with pytest.raises(UsageError, match="which holds"):
                samples(RandomInputs(ranges={"x": span}), Graph.of(sequence.model), pool, tmp_path)

    @pytest.mark.parametrize(
        ("dtype", "span"),
        [
            (TensorProto.UINT8, [0, 256]),
            (INT, [-(2**63), 2**63]),
            (TensorProto.UINT64, [2**63, 2**64]),
            (TensorProto.FLOAT16, [-65504, 65504]),
            (F, [-3.4028235e38, 3.4028235e38]),
            (TensorProto.DOUBLE, [-1.7e308, 1.7e308]),
            (B, [1, 2]),
        ],
    )
    def test_a_range_up_to_the_ends_of_the_type(self, pool: Pool, tmp_path: Path, dtype: int, span: list) -> None:
        (sample,) = arrays(RandomInputs(ranges={"x": span}), graph(x=(dtype, [4000])), pool, tmp_path)
        low, high = int(sample["x"].min()), int(sample["x"].max())
        assert span[0] <= low <= high <= span[1] and np.isfinite(sample["x"]).all()
        # spread over the whole of it
        assert span[1] - span[0] == 1 or high - low > (int(span[1]) - int(span[0])) * 9 // 10

    def test_the_range_of_all_others_is_for_numbers(self, pool: Pool, tmp_path: Path) -> None:
        one = graph(x=(F, [9]), b=(B, [99]), t=(TensorProto.STRING, [9]))
        (sample,) = arrays(RandomInputs(ranges={"": [-3, -2]}), one, pool, tmp_path)
        assert sample["x"].max() < -2 and set(sample["b"]) == {False, True}

    def test_shapes(self, pool: Pool, tmp_path: Path) -> None:
        one = graph(x=(F, ["N", 3, None]), s=(F, None))
        settings = RandomInputs(shapes={"x": [2, 3, 5], "s": [4]})
        (sample,) = samples(settings, one, pool, tmp_path)
        assert (sample["x"].shape, sample["s"].shape) == ((2, 3, 5), (4,))
        (sample,) = samples(RandomInputs(), graph(x=(F, []), b=(B, []), i=(INT, [])), pool, tmp_path)
        assert [file.shape for file in sample.values()] == [(), (), ()]
        (sample,) = samples(RandomInputs(shapes={"s": []}), one, pool, tmp_path)
        assert (sample["x"].shape, sample["s"].shape) == ((1, 3, 1), ())
        with pytest.raises(UsageError, match=r"inputs\.shapes\.s="):
            samples(RandomInputs(), one, pool, tmp_path)
        for bad in ([2, 4, 5], [2, 3], [-1, 3, 3]):
            with pytest.raises(UsageError, match=r"inputs\.shapes\.x"):
                samples(RandomInputs(shapes={"x": bad}), one, pool, tmp_path)
        with pytest.raises(UsageError, match=r"inputs\.shapes.*'q'"):
            samples(RandomInputs(shapes={"q": [1]}), one, pool, tmp_path)

    def test_no_inputs_and_no_types(self, pool: Pool, tmp_path: Path) -> None:
        assert samples(RandomInputs(), graph(), pool, tmp_path) == ({},)
        made = graph(x=(F, [1])).model
        sequence = ModelProto()
        sequence.CopyFrom(made)
        sequence.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(TypeProto(tensor_type=None)))
        with pytest.raises(NotApplicable, match="'x' has a type that cannot be fed"):
            samples(RandomInputs(), Graph.of(sequence), pool, tmp_path)
        with pytest.raises(UsageError, match="samples=0"):
            samples(RandomInputs(samples=0), graph(), pool, tmp_path)


class TestFiles:
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    ONE: ClassVar = {"x": (F, ["N", 3]), "i": (INT, [2])}

    def npz(self, path: Path, **more: np.ndarray) -> str:
        np.savez(path, **{"x": self.X, "i": np.array([1, 2]), **more})
        return str(path)

    def test_an_npz(self, pool: Pool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = self.npz(tmp_path / "a.npz", extra=np.zeros(1))
        with caplog.at_level(logging.WARNING):
            (sample,) = arrays(FilesInputs(path=path), graph(**self.ONE), pool, tmp_path / "out")
        assert np.array_equal(sample["x"], self.X) and list(sample) == ["x", "i"]
        assert "extra" in caplog.text

    def test_several(self, pool: Pool, tmp_path: Path) -> None:
        paths = [self.npz(tmp_path / f"s_{n}.npz", i=np.array([n, n])) for n in (10, 9, 1)]
        one = graph(**self.ONE)
        listed = arrays(FilesInputs(path=paths), one, pool, tmp_path / "out1")
        assert [sample["i"][0] for sample in listed] == [10, 9, 1]
        folder = arrays(FilesInputs(path=str(tmp_path)), one, pool, tmp_path / "out2")
        assert [sample["i"][0] for sample in folder] == [1, 9, 10]

    def test_an_npy(self, pool: Pool, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", self.X)
        settings = FilesInputs(path=str(tmp_path / "x.npy"))
        (sample,) = arrays(settings, graph(x=(F, [2, 3])), pool, tmp_path / "out")
        assert np.array_equal(sample["x"], self.X)
        with pytest.raises(UsageError, match="models with one input"):
            samples(settings, graph(**self.ONE), pool, tmp_path / "out")

    @pytest.mark.parametrize("names", [("", ""), ("i", "x"), ("q", "r")])
    def test_data_sets(self, pool: Pool, tmp_path: Path, names: tuple[str, str]) -> None:
        # by name where the names are the model's inputs, else by number
        held = [np.array([1, 2]), self.X] if names == ("i", "x") else [self.X, np.array([1, 2])]
        for number in range(2):
            folder = tmp_path / "model" / f"test_data_set_{number}"
            folder.mkdir(parents=True)
            for index, (name, array) in enumerate(zip(names, held, strict=True)):
                (folder / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
        one = graph(**self.ONE)
        both = arrays(FilesInputs(path=str(tmp_path / "model")), one, pool, tmp_path / "out")
        single = arrays(FilesInputs(path=str(folder)), one, pool, tmp_path / "out2")
        assert len(both) == 2 and len(single) == 1
        assert np.array_equal(both[1]["x"], self.X) and np.array_equal(single[0]["i"], [1, 2])

    def test_types_that_numpy_lacks(self, pool: Pool, tmp_path: Path) -> None:
        one = graph(x=(TensorProto.BFLOAT16, [2]), q=(TensorProto.INT4, [3]), e=(TensorProto.FLOAT8E5M2, [2]))
        bits = np.array([1.5, -2], ml_dtypes.bfloat16)
        np.savez(tmp_path / "a.npz", x=bits, q=np.array([1, -2, 3], np.int8), e=np.array([1, 2], np.float32))
        for array in (np.load(tmp_path / "a.npz")["x"],):
            assert array.dtype.kind == "V"
        (sample,) = arrays(FilesInputs(path=str(tmp_path / "a.npz")), one, pool, tmp_path / "out")
        assert sample["x"].astype(np.float32).tolist() == [1.5, -2]
        assert sample["q"].astype(np.int8).tolist() == [1, -2, 3]
        assert sample["e"].astype(np.float32).tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("dtype", "value", "message"),
        [
            (TensorProto.INT4, np.int8(9), "has 9, which int4 cannot hold: it has whole numbers from -8 to 7"),
            (TensorProto.UINT4, np.int8(-1), "has -1, which uint4 cannot hold"),
            (TensorProto.INT4, np.float32(0.5), "has 0.5, which int4 cannot hold"),
            (TensorProto.UINT4, np.float32("nan"), "has nan, which uint4 cannot hold"),
            (
                TensorProto.FLOAT8E4M3FN,
                np.float32(500),
                "has 500, which float8e4m3fn cannot hold: it has numbers from -448",
            ),
            (TensorProto.FLOAT8E4M3FN, np.float32("inf"), "has inf, which float8e4m3fn cannot hold"),
            (TensorProto.BFLOAT16, np.float32(3.4e38), r"has 3.4e\+38, which bfloat16 cannot hold"),
        ],
    )
    def test_values_that_the_type_cannot_hold(
        self, pool: Pool, tmp_path: Path, dtype: int, value: np.generic, message: str
    ) -> None:
        np.savez(tmp_path / "a.npz", x=np.array([1, value], value.dtype))
        with pytest.raises(UsageError, match=rf"a\.npz.*'x' {message}"):
            samples(FilesInputs(path=str(tmp_path / "a.npz")), graph(x=(dtype, [2])), pool, tmp_path / "out")

    def test_strings_and_big_endian(self, pool: Pool, tmp_path: Path) -> None:
        one = graph(t=(TensorProto.STRING, [2]), x=(F, [2]))
        np.savez(tmp_path / "a.npz", t=np.array(["a", "ü"]), x=np.array([1, 2], ">f4"))
        (sample,) = arrays(FilesInputs(path=str(tmp_path / "a.npz")), one, pool, tmp_path / "out")
        assert sample["t"].tolist() == ["a", "ü"] and sample["x"].tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("held", "message"),
        [
            ({"x": np.zeros((2, 3), np.float32)}, r"no value for input 'i', only for x; the model's inputs: x \(float"),
            ({"x": np.zeros((2, 3)), "i": np.zeros(2, np.int64)}, "'x' has type double, the model declares float"),
            ({"x": np.zeros((2, 4), np.float32), "i": np.zeros(2, np.int64)}, r"'x' has shape \[2, 4\].*\[N, 3\]"),
            ({"x": np.zeros(3, np.float32), "i": np.zeros(2, np.int64)}, "'x' has rank 1"),
            ({"x": np.array([{}], object), "i": np.zeros(2, np.int64)}, "pickle"),
        ],
    )
    def test_values_that_do_not_fit(self, pool: Pool, tmp_path: Path, held: dict, message: str) -> None:
        np.savez(tmp_path / "a.npz", **held)
        with pytest.raises(UsageError, match=rf"a\.npz.*{message}"):
            samples(FilesInputs(path=str(tmp_path / "a.npz")), graph(**self.ONE), pool, tmp_path / "out")

    def test_the_one_value_under_another_name_is_told_the_name(self, pool: Pool, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", ids=np.zeros(2, np.float32))
        with pytest.raises(UsageError, match=r"only for ids.*\. If ids is the same, save it under the name 'x'"):
            samples(FilesInputs(path=str(tmp_path / "a.npz")), graph(x=(F, [2])), pool, tmp_path / "out")

    def test_files_that_are_no_samples(self, pool: Pool, tmp_path: Path) -> None:
        one, good = graph(x=(F, [2, 3])), self.npz(tmp_path / "good.npz")
        (tmp_path / "a.txt").write_text("hello")
        (tmp_path / "empty").mkdir()
        for name in ("a.txt", "empty", "none.npz"):
            with pytest.raises(UsageError, match=name):
                samples(FilesInputs(path=str(tmp_path / name)), one, pool, tmp_path / "out")
        for path in (None, [], 7, [good, 7], ""):
            with pytest.raises(UsageError, match=r"inputs\.path"):
                samples(FilesInputs(path=path), one, pool, tmp_path / "out")


def test_what_a_file_claims_is_told_beside_what_is_free(pool: Pool, tmp_path: Path) -> None:
    """All else that files may claim: tests/test_hostile_inputs.py."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1125899906842624,), }\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"1234")
    with pytest.raises(UsageError, match=r"a\.npy.* of float32 takes 4.19e\+06 GiB, .* GiB are free"):
        samples(FilesInputs(path=str(tmp_path / "a.npy")), graph(x=(F, ["N"])), pool, tmp_path / "out")


class TestPython:
    def call(self, pool: Pool, tmp_path: Path, text: str) -> list[dict[str, np.ndarray]]:
        (tmp_path / "mine.py").write_text(text)
        settings = PythonInputs(file=str(tmp_path / "mine.py"))
        return arrays(settings, graph(x=(F, ["N"])), pool, tmp_path / "out")

    def test_a_generator(self, pool: Pool, tmp_path: Path) -> None:
        value = "{'x': np.full(n, n, np.float32), 'more': np.ones(1)}"
        text = f"import numpy as np\ndef samples():\n    for n in 1, 2:\n        yield {value}\n"
        found = self.call(pool, tmp_path, text)
        assert [sample["x"].tolist() for sample in found] == [[1], [2, 2]] and list(found[0]) == ["x"]

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("raise ValueError('what')", "raised ValueError: what"),
            ("return [{}]", "no value for input 'x'"),
            ("return [{'x': np.zeros(3)}]", "'x' has type double"),
            ("return []", "no sample"),
            ("return None", "it returns .or yields. dictionaries"),
            ("pass\ndel samples", "inputs=python: function=samples is not in"),
            ("os.kill(os.getpid(), 11)", "ended with death MEMORY"),
        ],
    )
    def test_what_goes_wrong(self, pool: Pool, tmp_path: Path, body: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            self.call(pool, tmp_path, f"import os, numpy as np\ndef samples():\n    {body}\n")

    def test_no_file(self, pool: Pool, tmp_path: Path) -> None:
        for file in (None, "none.py"):
            with pytest.raises(UsageError, match=r"inputs\.file"):
                samples(PythonInputs(file=file), graph(), pool, tmp_path)


def test_an_unknown_choice_lists_the_known_ones(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"inputs.name=no.*files, python, random"):
        samples(InputsSettings(name="no"), graph(), pool, tmp_path)


class TestContainers:
    """Inputs that are sequences, optionals and maps."""

    TENSOR = helper.make_tensor_type_proto(F, ["n", 3])
    TYPES: ClassVar = {
        "s": helper.make_sequence_type_proto(TENSOR),
        "o": helper.make_optional_type_proto(TENSOR),
        "x": helper.make_tensor_type_proto(INT, [2]),
        "m": helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(F, [])),
    }

    def graph(self, *names: str) -> Graph:
        model = ModelProto()
        model.CopyFrom(graph(**{name: (F, [1]) for name in names}).model)
        for value in model.graph.input:
            value.type.CopyFrom(self.TYPES[value.name])
        return Graph.of(model)

    def test_random(self, pool: Pool, tmp_path: Path) -> None:
        (sample,) = samples(RandomInputs(shapes={"o": [4, 3]}), self.graph("s", "o", "x", "m"), pool, tmp_path)
        # one name has one size
        assert sample["s"].structure == ("sequence", ("tensor", F)) and sample["s"].elements == ((4, 3), (4, 3))
        first, second = recorded.contents(sample["s"])
        assert not np.array_equal(first, second)
        assert recorded.contents(sample["o"]).shape == (4, 3)
        assert sample["x"].structure is None
        assert recorded.contents(sample["m"]).keys() == {"a", "b"}
        with pytest.raises(UsageError, match=r"inputs\.shapes\.s"):
            samples(RandomInputs(shapes={"s": [4, 4]}), self.graph("s"), pool, tmp_path)

    def test_a_data_set(self, pool: Pool, tmp_path: Path) -> None:
        one, items = self.graph("s", "x"), [np.full((at, 3), at, np.float32) for at in (2, 1)]
        folder = tmp_path / "test_data_set_0"
        folder.mkdir()
        sequence = numpy_helper.from_list(items, "any")
        (folder / "input_0.pb").write_bytes(sequence.SerializeToString())
        (folder / "input_1.pb").write_bytes(numpy_helper.from_array(np.array([1, 2])).SerializeToString())
        (sample,) = samples(FilesInputs(path=str(folder)), one, pool, tmp_path / "a")
        for found, item in zip(recorded.contents(sample["s"]), items, strict=True):
            np.testing.assert_array_equal(found, item)
        assert (sample["s"].name, sample["x"].name) == ("s", "x")
        wrong = numpy_helper.from_list([np.zeros((2, 4), np.float32)])
        for content, why in ((wrong, "declares"), (numpy_helper.from_list([np.zeros(3)]), "DOUBLE")):
            (folder / "input_0.pb").write_bytes(content.SerializeToString())
            with pytest.raises(UsageError, match=f"'s'.*{why}"):
                samples(FilesInputs(path=str(folder)), one, pool, tmp_path / "b")

    def test_an_npz_cannot_hold_one(self, pool: Pool, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", s=np.zeros((2, 3), np.float32))
        with pytest.raises(UsageError, match=r"'s'.*sequence of float.*test_data_set"):
            samples(FilesInputs(path=str(tmp_path / "x.npz")), self.graph("s"), pool, tmp_path / "a")

    def test_a_function(self, pool: Pool, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "import numpy as np\n"
            "def inputs():\n"
            "    one = np.ones((2, 3), np.float32)\n"
            "    yield {'s': [one, one[:1]], 'o': None, 'x': np.array([1, 2]), 'm': {'a': 0.5}}\n"
            "    yield {'s': [], 'o': one, 'x': np.array([1, 2]), 'm': {}}\n"
            "def wrong():\n"
            "    return {'s': np.ones((2, 3), np.float32)}\n"
            "def other():\n"
            "    return {'s': [np.ones((2, 4), np.float32)]}\n"
        )
        settings = PythonInputs(file=str(tmp_path / "mine.py"), function="inputs")
        first, second = samples(settings, self.graph("s", "o", "x", "m"), pool, tmp_path)
        assert (first["s"].elements, second["s"].elements) == (((2, 3), (1, 3)), ())
        assert recorded.contents(first["o"]) is None and recorded.contents(second["o"]).shape == (2, 3)
        assert recorded.contents(first["m"]) == {"a": np.float32(0.5)}
        for function, why in (("wrong", "no sequence but ndarray"), ("other", "shape")):
            settings = PythonInputs(file=str(tmp_path / "mine.py"), function=function)
            with pytest.raises(UsageError, match=f"'s'.*{why}"):
                samples(settings, self.graph("s"), pool, tmp_path)
