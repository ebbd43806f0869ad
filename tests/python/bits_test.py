"""nanscope.bits(): the command's anatomy of a number."""

import math

import numpy as np
import pytest

import nanscope


def test_a_value_is_what_the_command_says(command):
    number = nanscope.bits(430, "e4m3")
    assert str(number) == command.run("bits", "430", "-f", "e4m3").stdout
    assert (number.code, number.value, number.fields, number.number_class) == (0x7D, 416, "0_1111_101", "normal")
    assert number.rounding.value == 430
    assert number.rounding.stored == 416
    assert not number.rounding.exact
    assert (number.up.value, number.up.gap, number.down.value) == (448, 32, 384)


def test_a_code_as_the_command_reads_it():
    number = nanscope.bits("0x7f", "e4m3")
    assert math.isnan(number.value)
    assert number.number_class == "nan"
    assert number.rounding is None


def test_without_a_format_every_format():
    numbers = nanscope.bits(430)
    assert [number.format for number in numbers] == [one.name for one in nanscope.formats()]


def test_several_formats():
    assert [number.value for number in nanscope.bits(430, ["e4m3", "e5m2", "bf16"])] == [416, 448, 430]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "F8_E4M3", "torch.float8_e4m3fn", "fp8", "e4m3"])
def test_names_of_a_format(name):
    assert nanscope.bits(1, name).format == "e4m3"


def test_dtypes_as_formats():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert nanscope.bits(1, ml_dtypes.float8_e5m2).format == "e5m2"
    assert nanscope.bits(1, np.float16).format == "f16"
    assert nanscope.bits(1, np.dtype(ml_dtypes.bfloat16)).format == "bf16"
    with pytest.raises(TypeError, match="float8_e4m3"):  # another format than float8_e4m3fn
        nanscope.bits(1, ml_dtypes.float8_e4m3)


def test_formats_are_those_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for one in nanscope.formats():
        if one.name in ("int8", "i32"):
            continue
        about = ml_dtypes.finfo(one.dtype if one.dtype.startswith("float") and hasattr(np, one.dtype) else getattr(ml_dtypes, one.dtype))
        assert float(about.max) == one.max_finite
        assert about.bits == one.bits


def test_elements_of_an_array_are_codes_of_its_format():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    numbers = nanscope.bits(array)
    assert [number.code for number in numbers] == list(range(256))
    np.testing.assert_array_equal([number.value for number in numbers], array.astype(np.float64))


def test_elements_of_another_format_are_cast():
    numbers = nanscope.bits(np.array([430, np.nan, np.inf], np.float32), "e4m3")
    assert [number.code for number in numbers] == [0x7D, 0x7F, 0x7E]
    assert nanscope.bits(np.array([np.inf], np.float32), "e4m3", saturate=False)[0].code == 0x7F


def test_unsigned_integers_of_the_width_are_codes():
    assert nanscope.bits(np.array([0x7E], np.uint8), "e4m3")[0].value == 448
    assert nanscope.bits(np.array([126], np.int32), "e4m3")[0].value == 128


def test_nan_payloads_of_f32_are_kept():
    codes = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], np.uint32)
    assert [number.code for number in nanscope.bits(codes.view(np.float32))] == codes.tolist()


def test_one_element_of_an_array_is_one_number():
    assert nanscope.bits(np.float32(1.5)).fields == "0_01111111_10000000000000000000000"
    assert nanscope.bits(np.float64(430), "e4m3").value == 416


def test_scales(command):
    number = nanscope.bits(40, "e4m3", scale=0.0535920)
    assert (number.value, number.rounding.clipped) == (448, True)
    assert number.real == pytest.approx(24.0092, abs=1e-4)
    assert str(number) == command.run("bits", "40", "-f", "e4m3", "--scale", "0.0535920").stdout


def test_errors(command):
    with pytest.raises(nanscope.Error, match="unknown format 'e9m9'"):
        nanscope.bits(1, "e9m9")
    with pytest.raises(nanscope.Error) as error:
        nanscope.bits("four", "e4m3")
    assert str(error.value) == command.run("bits", "four", "-f", "e4m3").stderr.removeprefix("nanscope bits: ").strip()
    with pytest.raises(ValueError, match="at most 65536"):
        nanscope.bits(np.zeros(65537, np.float32))
    with pytest.raises(nanscope.Error, match="have no format of their own"):
        nanscope.bits(np.zeros(2))
