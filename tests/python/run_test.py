"""nanscope.open(): steps, ops and tensors of recordings and dumps."""

import gc
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

import nanscope


@pytest.fixture
def run(stored):
    with nanscope.open(stored) as run:
        yield run


def test_what_a_recording_is(run):
    assert run.info.recording
    assert run.info.scenario == "kv-scale-lock"
    assert run.info.steps == len(run.steps)
    assert run.info.ops == sum(len(step.ops) for step in run.steps)
    assert run.info.config["knobs"]["kv.format"] == "e4m3"
    assert [request.id for request in run.requests] == [0, 1, 2, 3, 4]
    assert set(run.requests[2].output_text) == {"!"}


def test_steps_ops_and_tensors_refer_to_each_other(run):
    step = run.steps[0]
    assert (step.kind, step.request, step.index) == ("prefill", 0, 0)
    assert step.spans[0].rows == step.rows
    op = next(op for op in step.ops if op.name == "q_proj")
    assert (op.kind, op.layer) == ("gemm", 0)
    (out,) = op.outputs
    assert (out.op, out.step, out.role) == (op.id, step.id, "out")
    x = next(one.tensor for one in op.inputs if one.role == "x")
    assert x.shape == (step.rows, x.shape[1])
    assert any(one.weight for one in op.inputs)
    assert isinstance(op.attributes, dict)


def test_a_place_names_a_tensor(run):
    tensor = run["4/0/0/logits"]
    assert tensor.place == "4/0/-/lm_head.logits"
    assert tensor.health.nan > 0
    assert np.isnan(tensor.numpy()).sum() == tensor.health.nan
    with pytest.raises(nanscope.Error, match="nothing is called|no "):
        run["9/9/9/nothing"]


def test_the_first_bad_tensor(run):
    assert run.first_bad.place == "2/0/1/inner_norm.out"
    assert run.first_bad.health.nan == 256
    assert next(run.tensors(bad=True)).id == run.first_bad.id


def test_health_of_every_tensor_is_that_of_its_elements(run):
    for tensor in run.steps[0].tensors:
        if tensor.format not in ("f32", "f16", "bf16", "e4m3"):
            continue
        found = nanscope.scan(tensor.bits() if tensor.format != "f32" else tensor.numpy(), format=tensor.format)
        counted = (tensor.health.nan, tensor.health.zero, tensor.health.saturated, tensor.health.absmax)
        assert (found.nan, found.zero, found.saturated, found.absmax) == counted


def test_what_is_not_stored_is_made_again_with_the_same_bits(run, unstored):
    with nanscope.open(unstored) as other:
        assert other.info.stored_tensors == 0
        for place in ("2/0/1/inner_norm.stats", "2/0/1/kv_store.v_codes", "4/0/-/lm_head.logits"):
            np.testing.assert_array_equal(other[place].bits(), run[place].bits())


def test_fp8_is_of_ml_dtypes(run):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = run["2/0/1/kv_store.v_codes"]
    array = codes.numpy()
    assert array.dtype == ml_dtypes.float8_e4m3fn
    assert array.shape == codes.shape
    np.testing.assert_array_equal(array.astype(np.float32), codes.values())
    assert (array.view(np.uint8) & 0x7F).max() == 0x7E


def test_fp8_without_ml_dtypes_says_what_its_bits_are(stored):
    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import nanscope\n"
        f"with nanscope.open({str(stored)!r}) as run:\n"
        "    array = run['2/0/1/kv_store.v_codes'].numpy()\n"
        "    print(array.dtype, run['2/0/1/kv_store.v_codes'].values().max())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[('e4m3_bits', 'u1')] 448.0\n"


def test_arrays_outlive_the_run_and_cannot_be_written(stored):
    with nanscope.open(stored) as run:
        array = run["4/0/0/logits"].numpy()
        expected = array.copy()
    del run
    gc.collect()
    np.testing.assert_array_equal(array, expected)
    assert not array.flags.writeable


def test_elements_of_a_dump_lie_where_the_file_is_mapped(tmp_path):
    x = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    np.save(tmp_path / "model.layers.0.mlp.output.npy", x)
    with nanscope.open(tmp_path) as run:
        first = run["model.layers.0.mlp.output"].numpy()
        again = run["model.layers.0.mlp.output"].numpy()
        assert np.shares_memory(first, again)
        np.testing.assert_array_equal(first, x)


def test_elements_of_a_dict_are_its_own():
    x = np.ones((64, 64), np.float32)
    with nanscope.open({"model.layers.0.mlp.output": x}) as run:
        assert np.shares_memory(run["model.layers.0.mlp.output"].numpy(), x)


def test_the_arrays_of_a_dict_live_as_long_as_the_run():
    with nanscope.open({"model.layers.0.mlp.output": np.full((64, 64), 7, np.float32)}) as run:
        gc.collect()
        array = run["model.layers.0.mlp.output"].numpy()
    del run
    gc.collect()
    assert (array == 7).all()


def test_rows_have_a_health_of_their_own(run):
    tensor = run.first_bad
    rows = tensor.row_health()
    assert len(rows) == tensor.shape[0]
    assert sum(row.nan for row in rows) == tensor.health.nan


def test_a_closed_run_answers_no_more(stored):
    run = nanscope.open(stored)
    run.close()
    run.close()
    assert run.closed
    with pytest.raises(nanscope.Error, match="closed"):
        run.steps


@pytest.mark.parametrize("damage", ["nowhere", "empty", "text", "cut off", "flipped"])
def test_damaged_recordings_are_refused_with_the_commands_line(command, unstored, tmp_path, damage):
    path = tmp_path / "run.nanscope"
    if damage == "empty":
        path.touch()
    elif damage == "text":
        path.write_text("not a recording\n")
    elif damage != "nowhere":
        shutil.copy(unstored, path)
        data = bytearray(path.read_bytes())
        if damage == "cut off":
            del data[len(data) // 2 :]
        else:
            data[100:200] = b"\xff" * 100
        path.write_bytes(data)
    with pytest.raises(nanscope.Error) as error:
        nanscope.open(path)
    assert str(error.value) == command.error("diagnose", path)


def test_elements_that_were_changed_are_an_error(run, stored, tmp_path):
    path = tmp_path / "run.nanscope"
    shutil.copy(stored, path)
    tensor = run["4/0/0/logits"].id
    database = sqlite3.connect(path)
    (data,) = database.execute("SELECT data FROM chunks WHERE id = ?", (tensor * 65536,)).fetchone()
    database.execute("UPDATE chunks SET data = ? WHERE id = ?", (b"\1" + data[1:], tensor * 65536))
    database.commit()
    database.close()
    with nanscope.open(path) as changed:
        with pytest.raises(nanscope.Error, match="damaged: the elements of tensor"):
            changed["4/0/0/logits"].bits()


def test_a_dump_that_is_written_to_is_not_believed(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((1024, 1024), np.float32))
    with nanscope.open(path) as run:
        with path.open("r+b") as file:
            file.truncate(4096)
        with pytest.raises(nanscope.Error, match="x.npy"):
            run.first_bad or run.diagnose()
            next(run.tensors()).numpy()


def test_several_threads_ask_at_once(run):
    places = ["4/0/0/logits", "2/0/1/inner_norm.stats", "2/0/1/kv_store.v_codes"] * 4
    found = {}

    def read(i):
        found[i] = run[places[i]].bits().tobytes()

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(places))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[i] == found[i % 3] for i in range(len(places)))


def test_tensors_that_were_not_dumped_have_no_elements(faulty):
    with nanscope.open(faulty) as run:
        unknown = [tensor for tensor in run.tensors() if not tensor.known]
        for tensor in unknown:
            with pytest.raises(nanscope.Error):
                tensor.numpy()


def png_size(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_pictures(run):
    for picture in (run._repr_png_(), run.front()._repr_png_(), run.first_bad._repr_png_()):
        width, height = png_size(picture)
        assert width > 100 and height > 50
    small = png_size(run.png(200, 100))
    assert small[0] < 900
    assert run.png(theme="dark") != run.png(theme="light")
    with pytest.raises(nanscope.Error, match="unknown theme 'pink'"):
        run.png(theme="pink")
    with pytest.raises(nanscope.Error, match="expected 1 to 8192"):
        run.first_bad.png(0, 10)


def test_the_front(run, command, stored):
    front = run.front()
    assert (front.request, front.step) == (2, 0)
    assert front.cells.shape == (len(front.rows), next(step for step in run.steps if step.request == 2).rows)
    assert nanscope.Front.STATES[front.cells.max()] == "nan"
    assert front.rows[0].label == "embed"
    assert front.text() in command.run("diagnose", stored).stdout
    clean = run.front(0)
    assert nanscope.Front.STATES[clean.cells.max()] != "nan"
    with pytest.raises(nanscope.Error, match="request 99 has no step 0"):
        run.front(99)


def test_the_front_of_a_diagnosis(unstored):
    found = nanscope.diagnose(unstored)
    assert found.front.request == 2
    assert png_size(found.front.png())
