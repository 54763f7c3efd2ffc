"""Promises in sets: their names, their errors, and the checks that need them."""

from __future__ import annotations

import pytest

from ddpcheck.contract import (
    GROUP_OF,
    GROUPS,
    SET_OF,
    TYPICAL,
    CallForm,
    Capabilities,
    CollectivePromises,
    ReplicaMethod,
    needs,
    promises_of,
)
from ddpcheck.contract.asked_promises import left_out, watched


def test_a_promise_has_a_name_of_its_own() -> None:
    """`but`, `lacks` and suggestions know a promise only by its name."""
    fields = [each for kind in GROUPS.values() for each in promises_of(kind)]
    names = [name for each in fields for name in (each.name, *each.metadata["members"])]
    assert len(names) == len(set(names))
    assert set(names) - set(GROUPS) == set(GROUP_OF)


def test_a_member_is_called_as_it_is_written() -> None:
    members = [member for kind in GROUPS.values() for each in promises_of(kind) for member in each.metadata["members"]]
    assert {member.name.lower(): str(member) for member in members} == {name: name for name in SET_OF}


def test_verdicts_say_which_members_a_check_asked_for_and_did_not_get() -> None:
    asked: set[str] = set()
    promised = watched(TYPICAL.but(subgroups=True), asked.add)
    assert promised.has(CallForm.SUBGROUPS)
    assert not promised.has(CallForm.IN_PLACE)
    assert not promised.has(ReplicaMethod.CLIPPING)
    assert not asked & {"asynchronous", "checkpoint"}
    assert left_out(promised, asked) == ("clipping", "in-place calls")
    assert left_out(TYPICAL.of_facets("collectives"), asked) == ("in-place calls", "sub-groups")


def test_a_set_that_is_read_as_a_whole_asks_for_all_its_members() -> None:
    asked: set[str] = set()
    assert not watched(TYPICAL, asked.add).but(batch_norm="synchronised").has(ReplicaMethod.CLIPPING)
    assert set(map(str, ReplicaMethod)) <= asked


def test_a_misspelt_member_names_the_right_one() -> None:
    with pytest.raises(AttributeError, match="CallForm has no member 'SUBGROUP'; did you mean 'SUBGROUPS'\\?"):
        CallForm.SUBGROUP  # type: ignore[attr-defined]  # noqa: B018  # on purpose
    with pytest.raises(ValueError, match="CallForm has no member 'sub_groups'; did you mean 'subgroups'\\?"):
        CollectivePromises(call_forms={"sub_groups"})  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match=r"subgroups'; it is a promise of CollectivePromises.call_forms"):
        CollectivePromises(subgroups=True)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(AttributeError, match=r"collectives has no promise 'subgroop'; did you mean 'subgroups'\?"):
        needs.collectives.subgroop  # noqa: B018
    with pytest.raises(ValueError, match="is promised or not; it takes no value"):
        needs.collectives.subgroups("yes")
    with pytest.raises(TypeError, match="subgroups must be True or False, got 'yes'"):
        TYPICAL.but(subgroups="yes")
    with pytest.raises(TypeError, match="no promise 'strided'; it is one of the names in model_features"):
        TYPICAL.but(strided=True)


def test_a_member_is_changed_by_its_own_name_and_any_set_may_be_given() -> None:
    promised = Capabilities(collectives=CollectivePromises(call_forms={CallForm.SUBGROUPS}))
    assert hash(promised) == hash(promised.but(in_place=False))
    assert promised.but(in_place=True).collectives.call_forms == {CallForm.SUBGROUPS, CallForm.IN_PLACE}
    assert promised.without(["subgroups"]).collectives.call_forms == frozenset()
    assert promised.but(call_forms=frozenset(CallForm), subgroups=False).has(CallForm.IN_PLACE)
    assert not promised.but(call_forms=frozenset(CallForm), subgroups=False).has(CallForm.SUBGROUPS)
