"""Valid addresses, and the errors of invalid ones. Each setting and option with an address uses these."""

from __future__ import annotations

import pytest

from mqruntime.hostports import addresses_in, check_address, check_host


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "0.0.0.0", "::", "::1", "[::1]", "fe80::1%eth0", "localhost", "broker-a", "broker_a.default.svc", "a.b.c.",
        "1a.example", "xn--bcher-kva.example", "bücher.example", "x" * 63,
    ],
)  # fmt: skip
def test_valid_hosts_are_accepted(host: str) -> None:
    assert check_host(host) == host
    assert check_address(f"{host}:65535") == f"{host}:65535"


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("", "no name"), ("a b", "blank"), ("http://a", "without http://"), ("a,b", "a comma where ;"), ("a:1", "no IPv6"),
        ("300.1.1.1", "no IPv4"), ("127.1", "no IPv4"), ("1", "no IPv4"), ("-a", "no name"), ("a-", "no name"),
        ("a..b", "no name"),
        ("a/b", "no name"), ("a@b", "no name"), ("*", "no name"), ("x" * 64, "no name"), ("[127.0.0.1]x", "no name"),
        ("a." * 130, "no name"), ("[::1", "no IPv6"), ("\0", "no name"),
    ],
)  # fmt: skip
def test_an_invalid_host_is_refused_with_the_reason(host: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_host(host)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("noport", "the port is missing"), (":1", "the port is missing"), ("a:", "no port from 1"), ("a:0", "no port from 1"),
        ("a:65536", "no port from 1"), ("a:" + "9" * 5_000, "no port from 1"), ("a:١", "no port from 1"),
        ("a:+1", "no port from 1"),
        ("a:1,b:2", "a comma where ;"), ("http://a:1", "without http://"), ("a:1 b:2", "blank"), ("300.0.0.1:1", "no IPv4"),
        ("", "empty"),
    ],
)  # fmt: skip
def test_an_invalid_address_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        check_address(text)
    assert "HOST:PORT" in str(error.value) and "separated by ;" in str(error.value)


def test_an_address_list_may_have_blanks_but_no_invalid_entry() -> None:
    assert addresses_in(" a:1 ;; [::1]:2 ;") == ["a:1", "[::1]:2"]
    assert addresses_in("") == []
    with pytest.raises(ValueError, match="'b' is not HOST:PORT"):
        addresses_in("a:1;b")
