"""How dsagent-init reads an answer."""

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsagent.entrypoints.init.exchange import NotUnderstoodError, read_answer

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabcdef", 200, b"abc"),
        (OK + b"content-length:0\n\n", 200, b""),
        (b"HTTP/1.0 404 \r\n\r\nto the end", 404, b"to the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\nnext", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", 200, b"a"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n",
            200,
            b"abc0123456789",
        ),
    ],
)
def test_answers(data: bytes, status: int, body: bytes) -> None:
    answer = read_answer(io.BytesIO(data))
    assert (answer.status, answer.body) == (status, body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200",
        OK,
        OK + b"Content-Length: 3\r\n",
        OK + b"Content-Length: 3\r\n\r\nab",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nab",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
    ],
)
def test_what_ends_too_early_is_a_lost_connection(data: bytes) -> None:
    with pytest.raises(ConnectionError):
        read_answer(io.BytesIO(data))


@pytest.mark.parametrize(
    "data",
    [
        b"220 mail.example ESMTP\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"x" * (1 << 17),
        OK + b"no colon\r\n\r\n",
        OK + b"".join(b"h%d: 1\r\n" % number for number in range(200)) + b"\r\n",
        OK + b"Content-Length: x\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 99999999999\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1000000\r\n" + bytes(1 << 24) + b"\r\n") * 2 + b"0\r\n\r\n",
        OK + b"\r\n" + bytes((16 << 20) + 1),
    ],
    ids=range(12),
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(NotUnderstoodError):
        read_answer(io.BytesIO(data))


@given(
    st.lists(
        st.sampled_from(
            [OK, b"\r\n", b"a: b\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"3\r\n", b"0"]
        )
        | st.binary(max_size=9)
    )
)
def test_nothing_else_comes_of_any_bytes(parts: list[bytes]) -> None:
    with contextlib.suppress(OSError, NotUnderstoodError):
        read_answer(io.BytesIO(b"".join(parts)))
