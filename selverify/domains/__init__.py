"""Every domain by its name, as ``params.yaml`` spells it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selverify.domains.base import Domain, GeneratedDomain, knows_truth
from selverify.domains.countdown import Countdown
from selverify.domains.grade_school import GradeSchool
from selverify.domains.math_steps import MathSteps
from selverify.domains.math_structured import MathStructured
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError

_EVERY: tuple[Domain, ...] = (
    WordProblems(),
    Countdown(),
    GradeSchool(),
    MathSteps(),
    MathStructured(),
)
DOMAINS: Mapping[str, Domain] = MappingProxyType({domain.name: domain for domain in _EVERY})
GENERATED: Mapping[str, GeneratedDomain] = MappingProxyType(
    {name: domain for name, domain in DOMAINS.items() if knows_truth(domain)}
)
"""Domains that draw their own problems and know the exact truth."""


def domain_by_name(name: str) -> Domain:
    """The domain called ``name``.

    Raises:
        ParamsError: there is no such domain.
    """
    if name not in DOMAINS:
        raise ParamsError(f"domain: given {name!r}, expected one of {', '.join(DOMAINS)}")
    return DOMAINS[name]


def generated_by_name(name: str) -> GeneratedDomain:
    """The domain called ``name``, which draws its own problems.

    Raises:
        ParamsError: there is no such domain, or its problems come from files.
    """
    if name not in GENERATED:
        raise ParamsError(
            f"domain: given {name!r}, expected one that draws its own problems: "
            f"{', '.join(GENERATED)}"
        )
    return GENERATED[name]
