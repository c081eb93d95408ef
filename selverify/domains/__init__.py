"""Every domain by its name, as ``params.yaml`` spells it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selverify.domains.base import GeneratedDomain
from selverify.domains.countdown import Countdown
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError

_ALL: tuple[GeneratedDomain, ...] = (WordProblems(), Countdown())
DOMAINS: Mapping[str, GeneratedDomain] = MappingProxyType({domain.name: domain for domain in _ALL})


def domain_by_name(name: str) -> GeneratedDomain:
    """The domain called ``name``.

    Raises:
        ParamsError: there is no such domain.
    """
    if name not in DOMAINS:
        raise ParamsError(f"domain: given {name!r}, expected one of {', '.join(DOMAINS)}")
    return DOMAINS[name]
