"""Traces are read as they are meant, and refused by the line that is wrong."""

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.errors import KvextError, TraceError
from kvext.simulation.trace import Trace, read_trace
from kvext.tenancy.policy import Session
from kvext.tenancy.recompute import RecomputeCost

_GOOD = {"timestamp": 5, "input_length": 1300, "output_length": 7, "hash_ids": [1, 2, 3]}


def _line(**changes: object) -> bytes:
    return json.dumps({**_GOOD, **changes}).encode()


def _without(field: str) -> bytes:
    return json.dumps({name: value for name, value in _GOOD.items() if name != field}).encode()


def _read(folder: Path, *lines: bytes, **options: int | str) -> Trace:
    file = folder / "trace.jsonl"
    file.write_bytes(b"\n".join(lines))
    return read_trace(file, **options)  # type: ignore[arg-type]


def test_line_becomes_an_access_with_its_costs(tmp_path: Path) -> None:
    trace = _read(tmp_path, _line())
    (access,) = trace.accesses
    assert list(access.keys) == [1, 2, 3]
    assert (access.now_ms, access.input_tokens, access.output_tokens) == (5, 1300, 7)
    assert access.first_cost_s == RecomputeCost().first_block_s(512)
    assert access.cost_step_s == RecomputeCost().block_step_s(512)
    assert (access.session, access.return_ms) == (Session.UNKNOWN, -1)
    assert (trace.num_requests, trace.num_blocks, trace.distinct_blocks()) == (1, 3, 3)
    assert trace.sessions is None


@pytest.mark.parametrize(
    ("tokens", "is_partial"), [(1300, True), (1536, False), (1537, False), (1025, True)]
)
def test_last_block_is_partial_if_the_prompt_does_not_fill_it(
    tmp_path: Path, tokens: int, *, is_partial: bool
) -> None:
    (access,) = _read(tmp_path, _line(input_length=tokens)).accesses
    assert access.partial_tail is is_partial


def test_ids_of_sixty_four_bits_are_keys(tmp_path: Path) -> None:
    ids = [2**64 - 1, 0, 2**63]
    assert list(_read(tmp_path, _line(hash_ids=ids)).accesses[0].keys) == ids


def test_empty_lines_byte_order_mark_and_foreign_fields_are_ignored(tmp_path: Path) -> None:
    lines = (b"\xef\xbb\xbf" + _line(priority="high", nested={"a": [1]}), b"", b" \r", _line(), b"")
    assert _read(tmp_path, *lines).num_requests == 2


def test_unknown_answer_length_is_null(tmp_path: Path) -> None:
    assert _read(tmp_path, _line(output_length=None)).accesses[0].output_tokens == -1


def test_time_may_have_fractions_of_milliseconds(tmp_path: Path) -> None:
    assert _read(tmp_path, _line(timestamp=27482.75)).accesses[0].now_ms == 27482


def test_request_shorter_than_a_block_counts_but_has_no_access(tmp_path: Path) -> None:
    trace = _read(tmp_path, _line(input_length=100, hash_ids=[]), _line())
    assert (trace.num_requests, len(trace.accesses)) == (2, 1)


def test_gzipped_trace_is_read(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl.gz"
    file.write_bytes(gzip.compress(_line() + b"\n" + _line()))
    assert read_trace(file).num_requests == 2


def test_trace_is_read_from_a_pipe() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(_line())
    try:
        assert read_trace(Path(f"/dev/fd/{reading}")).num_requests == 1
    finally:
        os.close(reading)


def test_other_block_size_is_taken(tmp_path: Path) -> None:
    line = _line(input_length=48, hash_ids=[1, 2, 3])
    assert _read(tmp_path, line, block_tokens=16).block_tokens == 16


def test_conversations_and_hints_are_read(tmp_path: Path) -> None:
    lines = (
        _line(session_id="a", closed=False, return_ms=30_000),
        _line(session_id=7),
        _line(),
        _line(session_id="a", closed=True),
    )
    trace = _read(tmp_path, *lines)
    assert trace.sessions == [0, 1, 2, 0]
    hints = [access.session for access in trace.accesses]
    assert hints == [Session.OPEN, Session.UNKNOWN, Session.UNKNOWN, Session.CLOSED]
    assert [access.return_ms for access in trace.accesses] == [30_000, -1, -1, -1]


def test_lines_of_one_tenant_are_taken(tmp_path: Path) -> None:
    lines = (_line(tenant="a"), _line(tenant="b", hash_ids=[4, 5, 6]), _line(tenant="a"), _line())
    trace = _read(tmp_path, *lines, tenant="b")
    assert [list(access.keys) for access in trace.accesses] == [[4, 5, 6]]
    with pytest.raises(TraceError, match="no line is of tenant 'c'; its lines name a, b"):
        _read(tmp_path, *lines, tenant="c")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (_line() + b"}", "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not JSON"),
        (b'{"timestamp": NaN}', "not JSON"),
        (_line()[:-1] + b', "x": ' + b"[" * 100_000, "nested too deeply"),
        (b"[1, 2]", "this is a list where an object belongs"),
        (b"12", "this is a whole number where an object belongs"),
        (_without("timestamp"), "'timestamp' is missing"),
        (_without("input_length"), "'input_length' is missing"),
        (_without("output_length"), "'output_length' is missing"),
        (_without("hash_ids"), "'hash_ids' is missing"),
        (_line(timestamp="5"), "'timestamp' is a string where a number belongs"),
        (_line(timestamp=True), "'timestamp' is true or false where a number belongs"),
        (_line(timestamp=-1), "'timestamp' is below 0"),
        (_line(timestamp=10**16), "'timestamp' is above 1000000000000000"),
        (_line().replace(b": 5", b": 1e999"), "'timestamp': number out of range"),
        (_line(input_length=1300.5), "'input_length' is a number where a whole number belongs"),
        (_line(input_length=-1300), "'input_length' is below 0"),
        (_line(input_length=10**30), "'input_length' is above"),
        (_line(output_length=-1), "'output_length' is below 0"),
        (_line(hash_ids="123"), "'hash_ids' is a string where a list belongs"),
        (_line(hash_ids=None), "'hash_ids' is null where a list belongs"),
        (_line(hash_ids=[1, "2", 3]), "'hash_ids[1]' is a string where a whole number belongs"),
        (_line(hash_ids=[1, 2**64, 3]), "hash id 18446744073709551616 is outside 0..2**64-1"),
        (_line(hash_ids=[1, -2, 3]), "hash id -2 is outside 0..2**64-1"),
        (_line(hash_ids=[1, 2, 1]), "hash id 1 occurs twice in one prompt"),
        (_line(hash_ids=[1]), "1 hash_ids for a prompt of 1300 tokens"),
        (_line(hash_ids=[1, 2, 3, 4]), "blocks of 512 tokens make 2 or 3"),
        (_line(hash_ids=[]), "0 hash_ids for a prompt of 1300 tokens"),
        (_line(timestamp=4), "timestamp 4 comes after 5"),
        (_line(closed="yes"), "'closed' is a string where true or false belongs"),
        (_line(return_ms=-1), "'return_ms' is below 0"),
        (_line(session_id=[1]), "'session_id' is a list where"),
        (_line(tenant=1), "'tenant' is a whole number where a string belongs"),
    ],
)
def test_wrong_line_is_named_with_the_reason_and_a_remedy(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    with pytest.raises(TraceError) as caught:
        _read(tmp_path, _line(), b"", line, _line())
    assert caught.value.line == 3
    assert caught.value.path == str(tmp_path / "trace.jsonl")
    assert reason in caught.value.reason
    assert f"trace.jsonl, line 3: {caught.value.reason}; " in str(caught.value)
    assert len(str(caught.value)) < 500


def test_wrong_block_size_points_to_the_option(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--block-tokens"):
        _read(tmp_path, _line(), block_tokens=16)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"  \n"])
def test_empty_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TraceError, match="it has no requests") as caught:
        _read(tmp_path, content)
    assert caught.value.line == 0


def test_trace_of_prompts_without_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="none of its 1 requests has a block"):
        _read(tmp_path, _line(input_length=3, hash_ids=[]))


def test_missing_file_folder_and_impossible_path_are_refused(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none.jsonl", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "a\0b", "zero byte"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        with pytest.raises(TraceError, match=reason):
            read_trace(path)


@pytest.mark.parametrize("cut", [3, 12, 30, 40])
def test_cut_off_archive_is_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "trace.gz"
    file.write_bytes(gzip.compress(_line())[:cut])
    with pytest.raises(TraceError):
        read_trace(file)


def test_file_without_line_ends_is_refused_before_all_of_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "zeros"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(TraceError, match="64 MiB without a line end"):
        read_trace(file)


@settings(deadline=None)  # the machine may be busy
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_refused_by_an_error_of_kvext(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "arbitrary"
    file.write_bytes(content)
    with pytest.raises(KvextError):
        read_trace(file)


_ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "a", "5"]),
    st.lists(st.integers(-1, 5) | st.integers(), max_size=4),
    st.just({"a": 1}),
)


@settings(deadline=None)  # the machine may be busy
@given(
    st.lists(
        st.fixed_dictionaries(
            {name: st.just(value) | _ANYTHING for name, value in _GOOD.items()},
            optional=dict.fromkeys(("session_id", "tenant", "closed", "return_ms"), _ANYTHING),
        ),
        max_size=3,
    ),
    st.integers(1, 2000),
)
def test_lines_of_arbitrary_values_are_read_or_refused_by_an_error_of_kvext(
    tmp_path_factory: pytest.TempPathFactory, lines: list[object], block_tokens: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "values"
    file.write_text("\n".join(map(json.dumps, lines)))
    try:
        trace = read_trace(file, block_tokens=block_tokens)
    except KvextError:
        return
    assert trace.num_blocks >= trace.distinct_blocks() > 0
