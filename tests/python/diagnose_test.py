"""nanscope.diagnose(): the command's answers, of files and of what is in memory."""

import json
import pathlib
import pickle

import numpy as np
import pytest

import nanscope
from conftest import norm


def save(folder, tensors):
    folder.mkdir()
    for name, array in tensors.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def without_target(document):
    return {key: value for key, value in document.items() if key != "target"}


def test_a_dump_is_what_the_command_says(command, tmp_path, faulty):
    dump = save(tmp_path / "dump", faulty)
    found = nanscope.diagnose(dump)
    assert found.to_dict() == command.json("diagnose", dump)
    assert found.verdict == "fault"
    assert found.root_cause == found.faults[0]
    assert found.place == found.root_cause.tensor
    assert found.fix == found.root_cause.fix != ""
    assert found.text() == str(found) == command.run("diagnose", dump).stdout


def test_a_recording_is_what_the_command_says(command, unstored):
    path = unstored
    found = nanscope.diagnose(path)
    assert found.to_dict() == command.json("diagnose", path)
    assert found.root_cause.fault_class == "kv-scale-locked"
    assert [event.kind for event in found.chain][:1] == ["scale-computed"]
    assert found.chain[0].because is None
    assert {check.state for check in found.checks} <= {"found", "excluded", "not-in-dump", "not-looked-at"}


def test_without_recomputation(command, unstored):
    path = unstored
    found = nanscope.diagnose(path, recompute=False)
    assert found.to_dict() == command.json("diagnose", path, "--no-recompute")
    assert found.recomputation.ops == 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_dict_is_diagnosed_as_its_files_are(command, tmp_path, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    tensors = {**norm(0, np.nan, dtype), **norm(1, 1, dtype)}
    found = nanscope.diagnose(tensors)
    written = command.json("diagnose", save(tmp_path / "dump", tensors))
    if dtype not in ("float32", "float16"):  # which a file of NumPy's does not say
        assert all(note["text"].startswith("stored as <V2, read as bf16") for note in written["notes"])
        written["notes"] = []
    assert without_target(found.to_dict()) == without_target(written)
    assert found.verdict == "fault"
    assert found.target == "tensors"


def test_steps_in_the_names_of_a_dict(faulty, healthy):
    found = nanscope.diagnose({**{f"step_0/{name}": array for name, array in healthy.items()},
                               **{f"step_1/{name}": array for name, array in faulty.items()}})
    assert found.root_cause is not None
    assert found.root_cause.tensor.startswith("step_1/model.layers.0.input_layernorm")


def test_no_fault_is_found_in_a_healthy_dump(healthy):
    found = nanscope.diagnose(healthy)
    assert (found.verdict, found.root_cause, found.faults, found.place, found.fix) == ("no-fault-found", None, (), None, None)
    assert found.front is None


def test_arrays_are_read_where_they_lie_and_left_as_they_are(faulty):
    before = {name: array.tobytes() for name, array in faulty.items()}
    for array in faulty.values():
        array.setflags(write=False)
    nanscope.diagnose(faulty)
    assert {name: array.tobytes() for name, array in faulty.items()} == before


def test_a_diagnosis_from_its_json(command, tmp_path, faulty):
    dump = save(tmp_path / "dump", faulty)
    document = json.loads(command.run("diagnose", dump, "--format", "json").stdout)
    found = nanscope.Diagnosis.from_dict(document)
    assert found == nanscope.diagnose(dump)
    assert found.to_dict() == document
    assert found.front is None
    assert found.root_cause.fault_class in str(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_document_that_is_none(command, tmp_path):
    unread = command.json("diagnose", tmp_path / "nowhere")
    with pytest.raises(nanscope.Error) as error:
        nanscope.Diagnosis.from_dict(unread)
    assert str(error.value) == unread["error"]
    with pytest.raises(nanscope.Error, match="not a diagnosis"):
        nanscope.Diagnosis.from_dict({})


def test_to_dict_is_a_copy(faulty):
    found = nanscope.diagnose(faulty)
    found.to_dict()["faults"].clear()
    assert found.to_dict()["faults"]


def test_markdown_for_notebooks(command, tmp_path, faulty):
    dump = save(tmp_path / "dump", faulty)
    markdown = nanscope.diagnose(dump)._repr_markdown_()
    assert markdown == command.run("diagnose", dump, "--format", "markdown").stdout


@pytest.mark.parametrize("make", ["nowhere", "mistyped", "dangling", "empty", "text", "damaged", "scenario", "scenarios"])
def test_errors_are_the_commands_line(command, source, tmp_path, make):
    path = tmp_path / "dump"
    if make == "empty":
        path.mkdir()
    elif make == "mistyped":
        save(tmp_path / "dumps", {"x": np.zeros(2)})
    elif make == "dangling":
        path.symlink_to("nowhere")
    elif make == "scenario":
        path = source / "scenarios" / "kv-scale-lock.toml"
    elif make == "scenarios":
        path.mkdir()
        (path / "x.toml").touch()
    elif make == "text":
        path.write_text("no tensors\n")
    elif make == "damaged":
        path = tmp_path / "dump.safetensors"
        path.write_bytes(b"\xff" * 20)
    with pytest.raises(nanscope.Error) as error:
        nanscope.diagnose(path)
    assert str(error.value) == command.error("diagnose", path)
    assert "\n" not in str(error.value)


def test_what_could_not_be_read_is_said_and_noted(tmp_path, faulty):
    dump = save(tmp_path / "dump", faulty)
    (dump / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.warns(nanscope.UnreadWarning, match="broken.npy"):
        found = nanscope.diagnose(dump)
    assert any("not read" in note.text and "broken.npy" in note.text for note in found.notes)


def test_dicts_that_cannot_be_read():
    with pytest.raises(nanscope.Error, match="tensors: no tensors were given"):
        nanscope.diagnose({})
    with pytest.raises(nanscope.Error, match="a tensor without a name"):
        nanscope.diagnose({"": np.zeros(2)})
    with pytest.raises(TypeError, match="'x': nanscope does not read dtype"):
        nanscope.diagnose({"x": np.array(["text"])})


def test_a_dict_has_the_name_that_it_is_given(healthy):
    assert nanscope.diagnose(healthy, name="step 7").target == "step 7"


def test_the_published_schema_holds(source, faulty):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(pathlib.Path(source, "docs", "diagnosis.schema.json").read_text())
    jsonschema.validate(nanscope.diagnose(faulty).to_dict(), schema)


def test_a_dump_with_its_model(source):
    dump = source / "tests" / "golden" / "verify" / "healthy-gemma2-f32" / "dump"
    model = source / "tests" / "unit" / "instrument" / "model" / "checkpoints" / "gemma2"
    alone, with_model = nanscope.diagnose(dump), nanscope.diagnose(dump, model=model)
    assert (alone.verdict, with_model.verdict) == ("no-fault-found", "clean")
    assert with_model.coverage.judged == with_model.coverage.outputs > alone.coverage.judged
    family = json.loads((dump.parents[1] / "fault-weight-in-memory" / "expected.json").read_text())["family"]
    wrong = nanscope.diagnose(dump.parents[1] / "fault-weight-in-memory" / "dump", model=model.parent / family)
    assert (wrong.root_cause.fault_class, wrong.root_cause.certainty) == ("wrong-result", "proved")
    with pytest.raises(nanscope.Error, match="config.json: cannot open"):
        nanscope.diagnose(dump, model=dump)
