"""One tree of errors, one class a code, and all of them survive pickling."""

import pickle

import pytest

from sluice import errors
from sluice.errors import FlussError, SluiceError, code_of, from_code

CLASSES = [
    getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)
]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_pickles_with_its_details(cls: type[SluiceError]) -> None:
    error = pickle.loads(pickle.dumps(cls("text", table="db.t")))
    assert type(error) is cls
    assert (str(error), error.details) == ("text", {"table": "db.t"})


def test_codes_are_those_of_the_docs_without_a_gap() -> None:
    ours = [1001, 1002]
    assert sorted(errors.BY_CODE) == [-1, *range(1, 75), *ours]
    retryable = {code for code, cls in errors.BY_CODE.items() if cls.retryable}
    assert retryable == {1, 3, 9, 10, 11, 12, 14, 21, 25, 26, 28, 29, 44, 70, 72, 73}


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_code_to_class_and_back(code: int) -> None:
    assert code_of(from_code(code, "why")) == code
    assert str(from_code(code, "why")) == "why"
    for blank in ("", " \n"):
        assert f"(Fluss error {code})" in str(from_code(code, blank))


def test_an_unknown_code_and_a_foreign_error_are_unknown_server_errors() -> None:
    assert type(from_code(9999, "x")) is errors.UnknownServerError
    assert code_of(ValueError()) == -1


def test_public_names_are_exactly_the_classes_there_are() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, SluiceError)
    }
    assert found | {"BY_CODE", "code_of", "from_code"} == set(errors.__all__)
    assert issubclass(errors.TableNotExist, FlussError)
