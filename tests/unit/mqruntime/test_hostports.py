"""Valid addresses, and the errors of invalid ones. Each setting and option with an address uses these."""

from __future__ import annotations

import pytest

from mqruntime.hostports import AddressRanges, addresses_in, check_address, check_host


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


def test_ranges_have_the_addresses_of_their_families_only() -> None:
    ranges = AddressRanges(" 10.0.0.1, 10.1.0.0/16;;2001:db8::/32 , fe80::/10")
    inside = ["10.0.0.1", "::ffff:10.0.0.1", "10.1.255.255", "2001:db8::1", "fe80::1%eth0"]
    outside = ["10.0.0.2", "10.2.0.0", "::ffff:10.0.0.2", "::10.0.0.1", "2001:db9::", "::1"]
    assert [each for each in [*inside, *outside] if each in ranges] == inside
    assert ranges and not AddressRanges() and not AddressRanges(" ,; ")
    assert "::1" not in AddressRanges("0.0.0.0/0") and "10.0.0.1" not in AddressRanges("::/0")
    assert AddressRanges("10.0.0.1,::/0").have_all_of_a_family and not ranges.have_all_of_a_family


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("proxy", "neither ADDRESS nor"), ("10.0.0.0/8,*", "'\\*' is neither"), ("10.0.0.1 10.0.0.2", "neither ADDRESS"),
        ("10.0.0.0/255.0.0.0", "neither ADDRESS"), ("fe80::1%eth0", "neither ADDRESS"), ("10.0.0.0-9", "neither ADDRESS"),
        ("10.0.0.1/8", "host bits set"), ("10.0.0.0/33", "33"), ("1", "does not appear"), ("10.0.0/8", "10.0.0/8"),
        ("::ffff:10.0.0.1", "as IPv4"),
    ],
)  # fmt: skip
def test_an_invalid_range_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        AddressRanges(text)
