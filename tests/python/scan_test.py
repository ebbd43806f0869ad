"""nanscope.scan(): health of one array, against NumPy's own count."""

import threading
import time

import numpy as np
import pytest

import nanscope

#: Dtypes of ml_dtypes, by how many codes they have.
SMALL = {"bfloat16": 65536, "float8_e4m3fn": 256, "float8_e5m2": 256, "float8_e4m3fnuz": 256, "float8_e5m2fnuz": 256,
         "float8_e8m0fnu": 256, "float6_e3m2fn": 64, "float6_e2m3fn": 64, "float4_e2m1fn": 16}


def check(health, array):
    """Against the array's own numbers as float64."""
    values = np.asarray(array).astype(np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    bad = np.flatnonzero(~np.isfinite(values))
    assert health.count == values.size
    assert health.nan == np.isnan(values).sum()
    assert health.pos_inf == (values == np.inf).sum()
    assert health.neg_inf == (values == -np.inf).sum()
    assert health.zero == (values == 0).sum()
    assert health.first_bad == (bad[0] if bad.size else None)
    assert health.min == (finite.min() if finite.size else None)
    assert health.max == (finite.max() if finite.size else None)
    assert health.absmax == (np.abs(finite).max() if finite.size else None)


@pytest.mark.parametrize("dtype", ["float16", "float32", *SMALL])
def test_every_code_of_a_format_is_counted_as_numpy_counts_it(dtype):
    if dtype in SMALL:
        array = np.arange(SMALL[dtype]).astype("u2" if dtype == "bfloat16" else "u1")
        array = array.view(getattr(pytest.importorskip("ml_dtypes"), dtype))
    elif dtype == "float16":
        array = np.arange(65536, dtype=np.uint16).view(dtype)
    else:
        array = (np.arange(65536, dtype=np.uint32) << 16 | 1).view(dtype)
    check(nanscope.scan(array), array)


def test_saturated_and_subnormal_are_those_of_the_format():
    codes = np.array([0x7E, 0xFE, 0x7D, 0x01, 0x08, 0x80], np.uint8)  # 448, -448, 416, 2^-9, 2^-6, -0
    health = nanscope.scan(codes, format="e4m3")
    assert (health.saturated, health.subnormal, health.zero) == (2, 1, 1)
    assert health.format == "e4m3"


def test_what_is_cast_is_counted_as_it_is_stored():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    health = nanscope.scan(np.array([448, -448, 447, 2**-9, 2**-6, 0], ml_dtypes.float8_e4m3fn))
    assert (health.saturated, health.subnormal, health.zero) == (3, 1, 1)  # 447 rounds to 448
    assert health.format == "e4m3"


def test_index_of_the_first_bad_element_in_its_own_shape():
    array = np.zeros((3, 5, 7), np.float32)
    array[1, 2, 3] = np.inf
    array[2, 0, 0] = np.nan
    health = nanscope.scan(array)
    assert health.first_bad == 1 * 35 + 2 * 7 + 3
    assert health.first_bad_index == (1, 2, 3)
    assert array[health.first_bad_index] == np.inf


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (511,), (513, 3), (1 << 20, 3)], ids=str)
def test_any_shape(shape):
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    check(nanscope.scan(np.asarray(array)), array)


def test_what_does_not_lie_in_order_is_read_in_the_order_of_its_indices():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    array[2, 1] = np.nan
    assert nanscope.scan(array.T).first_bad_index == (1, 2)
    assert nanscope.scan(array[:, 1::2]).first_bad_index == (2, 0)
    assert nanscope.scan(array[::-1]).first_bad_index == (0, 1)
    swapped = array.astype(">f4")
    check(nanscope.scan(swapped), array)


def test_an_array_that_lies_in_order_is_not_copied():
    from nanscope._arrays import describe

    array = np.zeros((64, 64), np.float16)
    assert np.shares_memory(describe(array).bytes, array.view(np.uint8))
    array = np.zeros((64, 64), pytest.importorskip("ml_dtypes").bfloat16)
    assert np.shares_memory(describe(array).bytes, array.view(np.uint8))


def test_sums_are_taken_when_asked_for():
    array = np.arange(1000, dtype=np.float32)
    assert nanscope.scan(array).mean is None
    health = nanscope.scan(array, sums=True)
    assert health.mean == pytest.approx(array.mean())
    assert health.variance == pytest.approx(array.astype(np.float64).var())


def test_nothing_depends_on_the_number_of_threads():
    array = np.random.default_rng(2).standard_normal((1 << 21) + 5).astype(np.float32)
    array[1234567] = np.nan
    one = nanscope.scan(array, sums=True, threads=1)
    assert all(nanscope.scan(array, sums=True, threads=threads) == one for threads in (2, 3, 8))


def test_codes_in_integers_are_read_in_the_format_that_is_said():
    codes = np.array([0x7E, 0x7F, 0xFE, 0], np.uint8)
    health = nanscope.scan(codes, format="float8_e4m3fn")
    assert (health.nan, health.saturated, health.max) == (1, 2, 448.0)
    assert nanscope.scan(np.array([0x7FC0, 0x3F80], np.uint16), format="bf16").nan == 1
    assert nanscope.scan(codes, format=pytest.importorskip("ml_dtypes").float8_e4m3fn) == health


def test_integers_are_counted_alone():
    health = nanscope.scan(np.arange(10))
    assert (health.count, health.min, health.format) == (10, None, None)


def test_float64_beyond_float32_is_finite():
    health = nanscope.scan(np.array([1e300, -1e300, np.inf]))
    assert (health.pos_inf, health.neg_inf, health.nan) == (1, 0, 0)


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([object()]), np.zeros(2, "f4,i4"), np.zeros(2, "M8[s]")],
                         ids=["text", "object", "record", "time"])
def test_what_is_no_number_is_a_type_error(array):
    with pytest.raises(TypeError, match="nanscope does not read dtype"):
        nanscope.scan(array)


def test_another_format_of_the_same_bits_is_a_type_error():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match="nanscope does not read dtype"):
        nanscope.scan(np.zeros(2, ml_dtypes.float8_e4m3))


def test_errors_in_one_line():
    with pytest.raises(nanscope.Error, match="unknown format 'fp9'"):
        nanscope.scan(np.zeros(2, np.uint8), format="fp9")
    with pytest.raises(nanscope.Error, match="expected elements of 16 bits"):
        nanscope.scan(np.zeros(2, np.uint8), format="bf16")
    with pytest.raises(nanscope.Error, match="complex number"):
        nanscope.scan(np.zeros(2, np.complex64))


def test_other_threads_run_meanwhile():
    array = np.zeros(1 << 25, np.float64)  # element by element: the slow way
    turns = 0
    done = threading.Event()

    def count():
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    before = turns
    nanscope.scan(array)
    after = turns
    done.set()
    other.join()
    assert after > before + 3


def test_several_threads_scan_at_once():
    arrays = [np.full(1 << 18, i, np.float32) for i in range(8)]
    found = [None] * 8

    def scan(i):
        found[i] = nanscope.scan(arrays[i]).max

    threads = [threading.Thread(target=scan, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [float(i) for i in range(8)]
